"""Encoders of the content of files, and what reads these files.

1. `audio`    log-mel spectrograms of sound, which `wav` reads and `spectrogram` computes.
2. `masks`    the class of each pixel or voxel; `volumes` are images in three dimensions, which `nifti` reads, and
   `resampling` brings to a spacing and a shape.
3. `boxes`    boxes around the objects of an image, from arrays or from the XML that `voc` reads.
4. `picture_files`  reads the pictures that masks and boxes belong to, and decides how a turned one's annotation is turned.
5. `file_kinds` says what other files are, and why a picture is refused.
"""
