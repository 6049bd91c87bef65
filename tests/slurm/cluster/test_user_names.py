"""A user without an entry has no name, and no error."""

import pytest

from rightsizer_slurm.cluster.user_names import user_name


@pytest.mark.parametrize(("uid", "name"), [(0, "root"), (2**31 - 7, "")], ids=["known", "unknown"])
def test_an_unknown_user_has_no_name(uid, name):
    assert user_name(uid) == name
