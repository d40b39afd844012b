"""Pages to look at in a browser: the report of results, and the inspector of a trained agent."""
