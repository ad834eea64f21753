"""A photo as a model's input, and the names of ImageNet's classes.

    photo.jpg ──resize, crop the middle──▶ [3, H, W] in 0…1 ──(x - mean) / std──▶ float32[1, 3, H, W]

The same steps as torchvision's for these models: shorter side to 256 (for 224), bilinear, ImageNet's mean
and deviation.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotensor.base.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
MARGIN = 256 / 224  # of the resized image around the crop
PHOTOS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")


def read_input(path: Path, shape: tuple[int, ...], dtype: str) -> Array:
    """An array of `shape` from a photo or a .npy file. Raises InputError saying what does not fit."""
    if path.suffix == ".npy":
        return read_array(path, shape, dtype)
    if path.suffix.lower() in PHOTOS:
        return read_photo(path, shape)
    raise InputError(f"input {str(path)!r} has an unknown ending.", fix=f"Known: .npy, {', '.join(PHOTOS)}.")


def read_array(path: Path, shape: tuple[int, ...], dtype: str) -> Array:
    import numpy as np

    try:
        values = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"input {str(path)!r} cannot be read: {error}.") from error
    if not isinstance(values, np.ndarray) or values.shape not in (shape, shape[1:]):
        found = getattr(values, "shape", type(values).__name__)
        raise InputError(f"input {str(path)!r} has shape {found}; the model takes {shape}.")
    if (
        str(values.dtype.newbyteorder("=")) != dtype and values.dtype.kind != "V"
    ):  # V: bfloat16, as NumPy keeps it
        raise InputError(
            f"input {str(path)!r} is {values.dtype}; the model takes {dtype}.",
            fix=f"Convert it: np.save({path.name!r}, np.load({path.name!r}).astype({dtype!r})).",
        )
    return np.ascontiguousarray(values.reshape(shape).astype(dtype))


def read_photo(path: Path, shape: tuple[int, ...]) -> Array:
    """The photo as a batch of one; repeated to fill a larger batch."""
    import numpy as np

    if len(shape) != 4 or shape[1] not in (1, 3):
        raise InputError(f"the model takes {shape}, which is no image.", fix="Give it a .npy file.")
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError as error:
        raise InputError(
            "reading photos needs Pillow.",
            fix="Install it: pip install pillow, or give a .npy file.",
        ) from error
    try:
        with Image.open(path) as opened:
            image = ImageOps.exif_transpose(opened).convert("L" if shape[1] == 1 else "RGB")
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"photo {str(path)!r} cannot be read: {error}.") from error
    height, width = shape[2:]
    if shape[1] == 1:
        values = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR), np.float32)[None] / 255
    else:
        values = _normalised(_middle(image, height, width))
    return np.ascontiguousarray(np.broadcast_to(values, shape), np.float32)


def _middle(image: Any, height: int, width: int) -> Any:
    """Resized so that the crop fits with ImageNet's margin, then cropped."""
    from PIL import Image

    scale = max(round(width * MARGIN) / image.width, round(height * MARGIN) / image.height)
    resized = image.resize(
        (max(width, int(image.width * scale + 1e-6)), max(height, int(image.height * scale + 1e-6))),
        Image.Resampling.BILINEAR,
    )
    left, top = round((resized.width - width) / 2), round((resized.height - height) / 2)
    return resized.crop((left, top, left + width, top + height))


def _normalised(image: Any) -> Array:
    import numpy as np

    values = np.asarray(image, np.float32) / 255  # [H, W, 3]
    values = (values - np.asarray(MEAN, np.float32)) / np.asarray(STD, np.float32)
    return values.transpose(2, 0, 1)  # [3, H, W]


@cache
def imagenet_classes() -> tuple[str, ...]:
    """The thousand names, by index."""
    text = (Path(__file__).parent / "data" / "imagenet_classes.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())


def class_name(index: int, count: int) -> str:
    """The name of a class out of `count`: ImageNet's for a thousand, else its number."""
    return imagenet_classes()[index] if count == 1000 else f"class {index}"
