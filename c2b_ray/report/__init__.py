"""Reports: `kit`, and a package for each kind of page. No arithmetic in templates."""
