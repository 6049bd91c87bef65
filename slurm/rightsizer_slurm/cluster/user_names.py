"""Names of users, as this machine knows them."""

import pwd


def user_name(uid: int) -> str:
    """Empty for a user without an entry here, such as a container's."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
