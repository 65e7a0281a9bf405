"""Write an image of a store to a path or a stream: the implementation of `Store.image`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from statelog.portable.frames import check_target, write_to
from statelog.portable.reports import ImageReport
from statelog.storage.file.creation import new_file
from statelog.storage.file.disk import write_all
from statelog.storage.options import check_path
from statelog.storage.store_image import write_image

if TYPE_CHECKING:
    from statelog.log.engine import Engine
    from statelog.portable.frames import ExportTarget


def write_image_of(engine: Engine, target: str | os.PathLike[str] | ExportTarget) -> ImageReport:
    """Write an image of a store; see `Store.image`."""
    if not isinstance(target, str | os.PathLike):
        check_target(target)
        return ImageReport(*write_image(engine.store_file.lmdb_file, partial(write_to, target)))
    check_path(target)
    with new_file(Path(target)) as descriptor:
        at = 0

        def write(data: bytes) -> None:
            nonlocal at
            write_all(descriptor, data, at)
            at += len(data)

        return ImageReport(*write_image(engine.store_file.lmdb_file, write))
