"""A hub's account has one token in a class, until its learner takes all back."""

from lib_dlhpc.classroom import accounts, classes, database, record
from lib_dlhpc.classroom.learner import identity


def made(folder):
    classes.keys(folder)
    database.create(folder / classes.DATABASE)
    return folder


def test_an_account_is_one_learner_in_a_class_and_another_one_elsewhere(tmp_path):
    one, other = made(tmp_path / "one"), made(tmp_path / "other")
    found = {accounts.token(place, name) for place in (one, other) for name in ("anna", "anna 1")}
    assert len(found) == 4
    assert {accounts.token(one, "anna") for _ in range(2)} < found


def test_who_has_taken_all_back_may_join_again_as_a_new_learner(tmp_path):
    folder = made(tmp_path / "class")
    tokens = []
    for _ in range(3):
        token = accounts.token(folder, "anna")
        own = classes.admit(folder, "anna", token=token)
        assert (own.token, own.id) == (token, identity(token))
        entry = record.add(own.folder, own.id, "toy", "q", "guess", answer="3")
        assert database.insert(folder / classes.DATABASE, [entry], "anna") == 1
        database.forget(folder / classes.DATABASE, own.id)
        tokens.append(token)
    assert len(set(tokens)) == 3
