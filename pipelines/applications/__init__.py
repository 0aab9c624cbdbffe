"""Applications, a folder each: all that one kind of data or model needs, from its settings to its figures.

No other room names one: each finds the modules that it knows by name (`config.slices`). What a folder may have: `settings`, with encoders,
tasks, formats and strategies; `draft` and `trial` for `lockstep init`; `figures` for the page of a run.

What only the application itself knows has the same name in each: `encoders`; `task`, with the network, unless that has the file `network`;
`…_details`, of an evaluation, and predictions without a network to compare with; `answers`, predictions without torch. Tests of one
application alone are in the folder of its name in tests/applications.
"""
