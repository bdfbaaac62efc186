"""Errors of the OTF2 library as OSError: the library prints the system error, and returns a later one."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EIO
from pathlib import Path
from typing import Any

# Of OTF2_ErrorCallback: user data, file, line, function, code, format, va_list; it returns the code.
_ErrorCallback = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_uint64,
    ctypes.c_char_p,
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_void_p,
)


@contextmanager
def as_os_errors(otf2: Any, path: Path) -> Iterator[None]:
    """Raise the first error of the library in the block as OSError of `path`; nothing is printed of it."""
    from _otf2 import Config, ErrorCodes  # type: ignore[import-untyped]

    codes: list[int] = []

    @_ErrorCallback
    def take(data: Any, file: Any, line: Any, function: Any, code: int, *_: Any) -> int:
        codes.append(code)
        return code

    register = Config.conf.lib.OTF2_Error_RegisterCallback
    register.argtypes, register.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_void_p
    before = register(ctypes.cast(take, ctypes.c_void_p), None)
    try:
        yield
    except ErrorCodes.Error as error:
        first = ErrorCodes.Error(ErrorCodes.ErrorCode(codes[0])) if codes else error
        raise OSError(EIO, str(first.description), str(path)) from None
    finally:
        register(before, None)
