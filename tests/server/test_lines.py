"""The lines of a client: a call whose form the SDK would refuse without a reason is told what is expected."""

import pytest
from mcp.types import INVALID_PARAMS, JSONRPCError

from kernelgate.server.lines import refusal


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ('{"name":"list_tasks","arguments":[1]}', "arguments must be an object and is a list"),
        ('{"name":"list_tasks","arguments":"{}"}', "arguments must be an object and is text"),
        ('{"name":5}', "name must be the name of a tool, as text, and is a number"),
        ('{"arguments":{}}', "name must be the name of a tool, as text, and is missing or null"),
        ('{"name":{},"arguments":true}', "is an object; arguments must be an object and is a truth value"),
    ],
)
def test_a_call_of_the_wrong_form_is_told_what_is_expected(params: str, words: str) -> None:
    line = f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}'.encode()
    refused = refusal(line)
    assert isinstance(refused, JSONRPCError)
    assert (refused.id, refused.error.code) == (7, INVALID_PARAMS)
    assert words in refused.error.message
    assert '"arguments": {"task": "softmax"}' in refused.error.message


@pytest.mark.parametrize(
    "params", ['{"name":"list_tasks"}', '{"name":"x","arguments":null}', '{"name":"","arguments":{}}']
)
def test_a_call_of_the_right_form_is_passed_on(params: str) -> None:
    line = f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}'.encode()
    assert refusal(line) is None
