"""Reports: `kit`, and a package for each kind of page. Templates do no arithmetic."""
