"""A job that has ended is run again: from its beginning, or from where it got to."""

from __future__ import annotations

from tests.behaviours.user import GATED, SHORT, User


def again(user: User, job: str, *options: str) -> str:
    new = user.ffdl("resubmit", job, *options).stdout.removeprefix("Model ID: ").strip()
    user.jobs.add(new)
    return new


def test_what_was_stopped_goes_on_as_a_new_job(user: User, short_model: bytes) -> None:
    """Stopped by mistake, or because the machine was needed: hours of training are not to be lost by that. And whoever
    wants to begin anew can."""
    first = user.train(user.job(env={**SHORT, **GATED}, checkpoint={"interval": "10 steps"}))
    user.until_step(first, 45)
    user.ffdl("stop", first)
    assert user.until_over(first).state == "FAILED"
    assert f"ffdl resubmit --from-checkpoint {first} " in user.ffdl("show", first).stderr
    second = again(user, first, "--from-checkpoint")
    assert f"\nContinues    {first}\n" in user.ffdl("show", second).stdout
    user.until_step(second, 50)
    user.open_gate(second)
    assert user.until_over(second).state == "COMPLETED", user.story()
    assert user.model(second) == short_model
    assert "restored at None" not in user.ffdl("logs", second).stdout
    third = again(user, second)
    assert "Continues" not in user.ffdl("show", third).stdout
    user.until_step(third, 1)
    user.open_gate(third)
    assert user.until_over(third).state == "COMPLETED", user.story()
    assert user.model(third) == short_model
    assert "restored at None" in user.ffdl("logs", third).stdout


def test_what_a_script_saved_by_itself_comes_along(user: User) -> None:
    """Also over a job that has failed again without getting any further."""
    script = 'cat "$CHECKPOINT_DIR/at" || echo 7 > "$CHECKPOINT_DIR/at"; exit 3'
    job = user.train(user.command(script))
    for _ in range(2):
        assert user.failed(job) == "learner 1 exited with code 3"
        job = again(user, job, "--from-checkpoint")
    assert user.failed(job) == "learner 1 exited with code 3"
    assert user.ffdl("logs", job).stdout.splitlines()[0] == "7"


def test_where_there_is_no_checkpoint_it_is_said(user: User) -> None:
    """Who asks to go on does not want hours to be done again without being told."""
    job = user.train(user.command("exit 3"))
    user.failed(job)
    new = again(user, job, "--from-checkpoint")
    assert f"there is no checkpoint of {job} in " in user.failed(new)
