"""Targets of exports, each in a folder that no module outside names: `config.serving` finds them, as it does those of other packages.

The module `target` of a folder has the function `write`, a `serving.export.targets.Write`. A module `settings` has the class `Settings` of
the section `export` of its name, which its docstring describes.
"""
