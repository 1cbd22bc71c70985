"""Where a user's caches lie, with platformdirs and without."""

import sys

import pytest

from webtune.store.folder import custom_folder, user_folder


@pytest.mark.parametrize(
    ("platform", "environ", "end"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x/cache"}, "/x/cache/webtune"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/.cache/webtune"),
        ("linux", {}, "/.cache/webtune"),
        ("darwin", {}, "/Library/Caches/webtune"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/webtune/Cache"),
        ("win32", {}, "/AppData/Local/webtune/Cache"),
    ],
)
def test_the_folder_follows_the_platforms_custom(platform, environ, end):
    assert custom_folder(platform, environ).as_posix().endswith(end)


def test_platformdirs_and_the_custom_name_the_same_folder(monkeypatch):
    with_it = user_folder()
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert user_folder() == with_it
