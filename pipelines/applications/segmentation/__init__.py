"""The class of each pixel or voxel, of images and volumes.

1. `settings`        has the encoders `mask` and `volume`, and the task `segmentation`.
2. `mask_encoder` and `volume_encoder` turn files into tensors; `nifti` reads volumes, and `resampling` brings them to one spacing.
3. `task`            has the model, `unet`, and `patches` of images for it.
4. `metrics`         are Dice and its kin; `mean_masks` predicts without a network; `details` and `figures` are for the page of a run.
5. `answers`         are predictions without torch, also of exported folders.
6. `draft`           is for `lockstep init`: `mask_draft` of images, `volume_draft` of volumes, by `volume_grids`.
"""
