"""The real libraries behind the roles, a file for each; `catalog` names them by spec. They know no audit and no Ray."""
