"""The class of each pixel or voxel, of images and volumes.

1. `settings`  has the encoders `mask` and `volume`, and the task `segmentation`.
2. `encoders`  turns files into tensors; `nifti` reads volumes, and brings them to one spacing.
3. `task`      trains a `network`, a U-Net, on parts of images.
4. `pixel_metrics` has Dice and its kin; `mask_details` has the details for the page of a run, which `figures` draws, and predictions
               without a network.
5. `answers`   are predictions without torch, also of exported folders.
6. `draft`     is for `lockstep init`: `mask_draft` of images, and `volume_draft` of volumes, by a `volume_grid`.
"""
