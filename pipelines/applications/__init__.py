"""Applications, a folder each: all that one kind of data or model needs, from its settings to its figures. No other room names one."""
