"""Questions of law put to the record: what was withdrawn, what rests on what, what was trained on; and erasing it."""
