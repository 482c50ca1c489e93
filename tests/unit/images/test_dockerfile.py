"""Dockerfiles as steps: what is read how, and what is refused with which line."""

from __future__ import annotations

import pytest

from agentkernel.errors import InvalidInputError, UnsupportedError
from agentkernel.images.dockerfile.model import (
    Arg,
    Cmd,
    Command,
    Copy,
    Env,
    Healthcheck,
    Heredoc,
    Label,
    Run,
    Volume,
    literal,
)
from agentkernel.images.dockerfile.parse import parse
from agentkernel.images.dockerfile.variables import Arguments, StageVariables
from agentkernel.images.dockerfile.words import expand, expand_raw, expand_words
from agentkernel.images.oci.model import Platform


def _steps(text: str) -> list[object]:
    (stage,) = parse(f"FROM scratch\n{text}".encode()).stages
    return list(stage.steps)


def _only(text: str) -> object:
    (step,) = _steps(text)
    return step


def test_instructions_may_be_continued_with_comments_and_empty_lines_between() -> None:
    step = _only("RUN echo a \\\n  # said\n\n    && echo b \\  \n && echo c\n")
    assert isinstance(step, Run)
    assert step.command == Command(("echo a     && echo b  && echo c",))
    assert step.line == 2


def test_the_escape_character_can_be_another() -> None:
    build = parse(b"# escape=`\nFROM scratch\nRUN dir C:\\ `\n  && x\n")
    (run,) = build.stages[0].steps
    assert isinstance(run, Run)
    assert run.command.words == ("dir C:\\   && x",)
    assert build.escape == "`"


def test_a_syntax_comment_is_ignored_and_told() -> None:
    build = parse(b"# syntax=docker/dockerfile:1\nFROM scratch\n")
    assert "line 1: # syntax=docker/dockerfile:1 is ignored" in build.notes[0]


def test_directives_count_only_before_anything_else() -> None:
    build = parse(b"# a comment\n# escape=`\nFROM scratch\n")
    assert build.escape == "\\"


def test_json_is_the_exec_form_and_anything_like_it_is_a_text() -> None:
    assert _only('CMD ["a", "b c"]') == Cmd(
        Command(("a", "b c"), is_shell=False), line=2, source='CMD ["a", "b c"]'
    )
    step = _only("RUN [ -e /x ] && echo y")
    assert isinstance(step, Run) and step.command == Command(("[ -e /x ] && echo y",))


def test_a_heredoc_alone_is_the_script() -> None:
    step = _only("RUN <<EOF\necho 1\necho $A\nEOF\n")
    assert isinstance(step, Run)
    assert step.command == Command(("echo 1\necho $A\n",))


def test_a_heredoc_with_an_interpreter_is_a_file() -> None:
    step = _only("RUN <<EOF\n#!/usr/bin/python3\nprint(1)\nEOF\n")
    assert isinstance(step, Run)
    assert step.script == "#!/usr/bin/python3\nprint(1)\n"


def test_a_heredoc_within_a_command_is_given_to_the_shell() -> None:
    steps = _steps("RUN cat <<-A >/x && cat <<B\n\tone\n\tA\ntwo\nB\nCMD x\n")
    assert isinstance(steps[0], Run)
    assert steps[0].command.words == ("cat <<-A >/x && cat <<B\n\tone\n\tA\ntwo\nB",)
    assert isinstance(steps[1], Cmd) and steps[1].line == 7


def test_files_written_in_the_dockerfile() -> None:
    step = _only('COPY <<one.txt <<-"two" /dir/\na $B\none.txt\n\tc $D\n\ttwo\n')
    assert isinstance(step, Copy)
    assert step.target == "/dir/" and step.sources == ()
    assert step.heredocs == (
        Heredoc("one.txt", "a $B\n", expands=True),
        Heredoc("two", "c $D\n", expands=False),
    )


def test_flags_of_copy() -> None:
    step = _only('COPY --from=build --chown=1:$G --chmod=0644 --link a "b c" /d/')
    assert isinstance(step, Copy)
    assert (step.origin, step.owner, step.mode) == ("build", "1:$G", "0644")
    assert step.sources == ("a", '"b c"')


def test_pairs_new_and_old() -> None:
    step = _only('ENV A=1 B="two words" C=x\\ y')
    assert isinstance(step, Env)
    assert step.pairs == (("A", "1"), ("B", '"two words"'), ("C", "x\\ y"))
    old = _only("ENV NAME a value with blanks")
    assert isinstance(old, Env) and old.pairs == (("NAME", "a value with blanks"),)
    label = _only('LABEL "a b"="c"')
    assert isinstance(label, Label) and label.pairs == (('"a b"', '"c"'),)


def test_arguments_before_the_first_stage_and_in_it() -> None:
    build = parse(b"ARG V=1\nFROM a:$V AS one\nARG V W=2\nFROM one\n")
    assert [arg.names for arg in build.arguments] == [(("V", "1"),)]
    assert build.stages[0].steps == (Arg((("V", None), ("W", "2")), line=3, source="ARG V W=2"),)
    assert [stage.alias for stage in build.stages] == ["one", ""]


def test_a_health_check_with_its_times() -> None:
    step = _only("HEALTHCHECK --interval=1m30s --timeout=500ms --retries=3 CMD curl x")
    assert isinstance(step, Healthcheck)
    assert (step.interval, step.timeout, step.retries) == (90 * 10**9, 5 * 10**8, 3)
    assert step.command == Command(("curl x",))
    none = _only("HEALTHCHECK NONE")
    assert isinstance(none, Healthcheck) and none.command is None


def test_volumes_in_both_forms() -> None:
    for text in ('VOLUME ["/a", "/b"]', "VOLUME /a /b"):
        step = _only(text)
        assert isinstance(step, Volume) and step.paths == ("/a", "/b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("FROM a\nONBUILD RUN x", "line 2: ONBUILD is not supported"),
        ("FROM a\nRUN --mount=type=cache,target=/x y", "line 2: RUN --mount is not supported"),
        ("FROM a\nRUN --security=insecure y", "line 2: RUN --security is not supported"),
        ("FROM a\n\nADD https://x/y /z", "line 3: ADD of an address (https://x/y)"),
        ("FROM a\nADD git@github.com:a/b /z", "line 2: ADD of an address"),
        ("FROM a\nCOPY --parents a b", "line 2: COPY --parents is not supported"),
        ("FROM a\nCOPY --unheard=1 a b", "line 2: COPY --unheard=1 is not supported"),
    ],
)
def test_what_we_do_not_do_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        parse(text.encode())
    assert said in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no FROM"),
        ("RUN x", "line 1: RUN stands before the first FROM"),
        ("FROM a\nFLY away", "line 2: FLY is no instruction"),
        ("FROM a b", "line 1: FROM is followed by"),
        ("FROM a AS b\nFROM c AS B", "line 2: there is a stage b before"),
        ("FROM a AS 0x", "can't be the name of a stage"),
        ("FROM a\nCOPY x", "line 2: COPY needs what and where to"),
        ("FROM a\nENV A=1 B", "line 2: 'B' has no ="),
        ("FROM a\nENV =1", "no name before its ="),
        ("FROM a\nARG 1=2", "line 2: '1' can't be the name of an argument"),
        ("FROM a\nSHELL /bin/sh", "line 2: SHELL is written as"),
        ("FROM a\nRUN <<EOF\nx", "line 2: the text of <<EOF has no end"),
        ("FROM a\nUSER a b", "line 2: USER is followed by one word"),
        ("FROM a\nHEALTHCHECK --interval=5 CMD x", "line 2: '5' is no time"),
        ("FROM a\nCMD", "line 2: CMD says nothing"),
        ("FROM a\nRUN []", "line 2: RUN [] runs nothing"),
        ("FROM a\0", "a NUL"),
        ("# escape=x\nFROM a", "line 1: the escape character"),
    ],
)
def test_what_is_no_dockerfile_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(text.encode())
    assert said in caught.value.message


def test_sizes_are_bounded() -> None:
    with pytest.raises(InvalidInputError, match="MiB"):
        parse(b"#" * (4 << 20) + b"\n")
    with pytest.raises(InvalidInputError, match="instructions"):
        parse(b"FROM a\n" + b"RUN x\n" * 10_001)


_VALUES = {"A": "1", "E": "", "S": "x  y"}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("$A-${A}", "1-1"),
        ("${E:-d}|${E-d}|${N-d}", "d||d"),
        ("${A:+y}|${E:+y}|${E+y}|${N+y}", "y||y|"),
        ("${N:-${A}z}", "1z"),
        ("'$A'\"$A\"\\$A", "$A1$A"),
        ('"a\\"b\\q"', 'a"b\\q'),
        ("a$", "a$"),
        ("$1$?", ""),
        ("$AB", ""),
        ("${N:-'}'}", "}"),
    ],
)
def test_variables_in_words(text: str, word: str) -> None:
    assert expand(text, _VALUES) == word


@pytest.mark.parametrize(
    "text", ["'a", '"a', "${A", "${}", "${A:=x}", "${N:?must}", "${A%x}", "${A:", "${N:-" * 40]
)
def test_words_that_can_not_be_worked_out(text: str) -> None:
    with pytest.raises(InvalidInputError):
        expand(text, _VALUES)


def test_words_are_cut_where_variables_have_blanks() -> None:
    assert expand_words('a$S "$S" ""', _VALUES) == ["ax", "y", "x  y", ""]


def test_heredocs_keep_their_quotes() -> None:
    assert expand_raw("'$A' \"x\" \\$A \\\\ \\n", _VALUES) == "'1' \"x\" $A \\ \\n"


def test_a_word_can_not_grow_for_ever() -> None:
    with pytest.raises(InvalidInputError, match="longer"):
        expand("$A" * 20, {"A": "x" * 100_000})


def test_a_literal_stands_for_itself() -> None:
    text = 'it\'s "$HOME" \\ `x` {y}'
    assert expand(literal(text), {"HOME": "z"}) == text


def _stage(given: dict[str, str], environment: dict[str, str]) -> StageVariables:
    arguments = Arguments(given, Platform("amd64", "linux"))
    arguments.declare([Arg((("VERSION", "12"), ("BASE", "debian:$VERSION")))])
    return StageVariables(arguments, environment)


def test_environment_beats_arguments_and_stages_name_what_they_want() -> None:
    stage = _stage({"GIVEN": "g"}, {"BOTH": "env"})
    assert stage.expand("[$VERSION$GIVEN$TARGETARCH]") == "[]"
    names = (("VERSION", None), ("GIVEN", "default"), ("TARGETARCH", None), ("BOTH", "arg"))
    stage.declare(Arg((*names, ("D", "$VERSION!"))))
    assert stage.expand("$VERSION $GIVEN $TARGETARCH $BOTH $D") == "12 g amd64 env 12!"
    assert stage.recorded == {"VERSION": "12", "GIVEN": "g", "TARGETARCH": "amd64", "D": "12!"}


def test_proxies_need_no_declaration_and_leave_no_trace() -> None:
    stage = _stage({"http_proxy": "http://p"}, {})
    assert stage.of_a_command == {"http_proxy": "http://p"}
    assert stage.recorded == {}


def test_arguments_that_nobody_asked_for_are_known() -> None:
    arguments = Arguments({"A": "1", "B": "2", "no_proxy": "x"}, Platform("amd64", "linux"))
    arguments.declare([Arg((("A", None),))])
    assert arguments.unused == {"B"}
    assert arguments.expand("x:$A$TARGETOS") == "x:1linux"
