"""Tables and figures. They only read results; nothing here trains."""
