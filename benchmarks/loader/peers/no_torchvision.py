"""Replaces torchvision, which MosaicML Streaming imports for datasets not used here, and which some versions of torch lack."""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

_CONTENT = {"": {}, ".datasets": {"VisionDataset": object}, ".transforms": {}, ".transforms.functional": {"to_tensor": None}}

for name, content in _CONTENT.items():
    module = ModuleType(f"torchvision{name}")
    module.__spec__ = ModuleSpec(module.__name__, None)
    vars(module).update(content)
    sys.modules[module.__name__] = module
