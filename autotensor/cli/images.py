"""Reads files, photos among them, as a model's inputs; has the names of ImageNet's classes.

    photo.jpg ──resize, crop the middle──▶ [3, H, W] in 0…1 ──(x - mean) / std──▶ float32[1, 3, H, W]

The steps are those of torchvision for these models: the shorter side is resized to 256 (for a crop of 224),
bilinearly, and the values are normalised by ImageNet's mean and deviation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from autotensor.base.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from autotensor.runtime.files.artifact import ArgSpec

    Array = np.ndarray[Any, np.dtype[Any]]

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
MARGIN = 256 / 224  # size of the resized image over the size of the crop
PHOTOS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")


def read_inputs(path: Path, wanted: Sequence[ArgSpec], model: str) -> list[Array]:
    """A call's arguments, in order: by name from an .npz file, or the only array of another file."""
    if path.suffix == ".npz":
        return read_archive(path, wanted)
    if len(wanted) != 1:
        raise InputError(
            f"{model} takes {len(wanted)} inputs ({_names(wanted)}); {str(path)!r} gives one.",
            fix="Give all inputs in one .npz file, by name: np.savez writes one.",
        )
    return [read_input(path, wanted[0].shape, wanted[0].dtype)]


def read_input(path: Path, shape: tuple[int, ...], dtype: str) -> Array:
    """An array of `shape` from a photo or a .npy file. Raises InputError for another shape or type."""
    if path.suffix == ".npy":
        return _fitting(load_arrays(path), f"input {str(path)!r}", shape, dtype)
    if path.suffix.lower() in PHOTOS:
        return read_photo(path, shape)
    known = ", ".join((".npy", ".npz", *PHOTOS))
    raise InputError(f"input {str(path)!r} has an unknown ending.", fix=f"Known: {known}.")


def read_archive(path: Path, wanted: Sequence[ArgSpec]) -> list[Array]:
    """The arrays of an .npz file, in the order of the model's inputs."""
    held = load_arrays(path)
    if not isinstance(held, Mapping) or set(held) != {a.name for a in wanted}:
        names = (", ".join(held) or "nothing") if isinstance(held, Mapping) else "one array without a name"
        raise InputError(f"input {str(path)!r} holds {names}; the model takes {_names(wanted)}.")
    return [_fitting(held[a.name], f"{a.name!r} of {str(path)!r}", a.shape, a.dtype) for a in wanted]


def _names(wanted: Sequence[ArgSpec]) -> str:
    return ", ".join(a.name for a in wanted)


def check_there(path: Path, fix: str = "") -> None:
    """Raises InputError if the path is not a file; fix: what to write where there is nothing."""
    if path.is_dir():
        raise InputError(f"input {str(path)!r} is a folder.", fix="Name a file in it.")
    if not path.is_file():
        raise InputError(f"there is no input file {str(path)!r}.", fix=fix)


def load_arrays(path: Path) -> Any:
    """The contents of a NumPy file: an array, or arrays by name."""
    import numpy as np

    check_there(path)
    if not path.stat().st_size:
        raise InputError(f"input {str(path)!r} is empty.")
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            return dict(found) if isinstance(found, Mapping) else found
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        # NumPy's own advice, to unpickle the file, is dangerous
        why = "it holds no plain arrays" if "pickle" in str(error) else error
        raise InputError(f"input {str(path)!r} cannot be read: {why}.") from error


def _fitting(values: Any, what: str, shape: tuple[int, ...], dtype: str) -> Array:
    """`values`, checked against the model's shape and type; a batch of one may lack its first axis."""
    import numpy as np

    if not isinstance(values, np.ndarray) or values.shape not in (shape, shape[1:]):
        found = getattr(values, "shape", type(values).__name__)
        raise InputError(f"{what} has shape {found}; the model takes {shape}.")
    # V: NumPy's kind for bfloat16
    if str(values.dtype.newbyteorder("=")) != dtype and values.dtype.kind != "V":
        raise InputError(
            f"{what} is {values.dtype}; the model takes {dtype}.",
            fix=f"Convert it before it is saved: .astype({dtype!r}).",
        )
    return values.reshape(shape).astype(dtype, order="C")


def read_photo(path: Path, shape: tuple[int, ...]) -> Array:
    """The photo as a batch of one; repeated to fill a larger batch."""
    import numpy as np

    if len(shape) != 4 or shape[1] not in (1, 3):
        raise InputError(f"the model takes {shape}, which is not an image.", fix="Give it a .npy file.")
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
    """The middle of the image: resized with ImageNet's margin around the crop, then cropped."""
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
    """The name of a class out of `count`: for a thousand classes ImageNet's name, else the index."""
    return imagenet_classes()[index] if count == 1000 else f"class {index}"
