"""The class of each pixel or voxel, of images and volumes.

1. `settings`  has the encoders `mask` and `volume`, and the task `segmentation`.
2. `encoders`  turns files into tensors; `nifti` reads volumes, and brings them to one spacing.
3. `task`      trains a `network`, a U-Net, on parts of images.
4. `metrics`   has Dice and its kin, predictions without a network, and details for the page of a run; `figures` draws them.
5. `answers`   are predictions without torch, also of exported folders.
6. `draft`     is for `lockstep init` of volumes, `mask_draft` of images.
"""
