"""`hgpo-gym` as a person calls it, in this process."""

from hgpo_gym.cli.main import main


def run(capsys, *arguments):
    """Exit status, standard output and standard error."""
    status = 0
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as exit:
        status = exit.code
    captured = capsys.readouterr()
    return status, captured.out, captured.err
