"""How well the local model calls tools, natively and emulated.

    uv run python benchmarks/local_tools.py [native|emulated]

Each question is asked at temperature 0 with one to three tools on offer; a call of the right tool
is answered with a fixed result. Columns: the right tool was called (or none, where none fits); its
arguments were right; the reply after the result was text; that text holds the fact asked for.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

import anyio

from loopctl.errors import LoopError
from loopctl.messages import Message, ToolResultPart
from loopctl.models.client import ModelClient, ModelRequest, ToolSchema
from loopctl.models.connect import connect
from loopctl.tools.builtin import read_text_file


def tool(name: str, description: str, **properties: str) -> ToolSchema:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
    }
    return ToolSchema(name=name, description=description, input_schema=schema)


READ = ToolSchema(
    name=read_text_file.name,
    description=read_text_file.description,
    input_schema=read_text_file.input_schema,
)
WEATHER = tool("get_weather", "Get the current weather of a city.", city="string")
ADD = tool("add", "Add two integers.", a="integer", b="integer")
TIME = tool("get_time", "Get the current time in a city.", city="string")
CAPITAL = tool("find_capital", "Find the capital of a country.", country="string")

NOTES = "Project notes.\nThe deadline is 14 March.\nBudget: 300 euros."
README = "# loopctl\n\nloopctl is an agent loop with context that you control.\n"


@dataclass(frozen=True)
class Case:
    """A question; `call`, `result` and `fact` are empty where no tool fits."""

    question: str
    tools: tuple[ToolSchema, ...]
    call: str = ""
    arguments: Any = None
    result: str = ""
    fact: str = ""


def reads(question: str, path: str, content: str, fact: str, *more: ToolSchema) -> Case:
    return Case(question, (READ, *more), "read_text_file", {"path": path}, content, fact)


CASES = (
    reads("What is written in hello.txt?", "hello.txt", "The meeting is at noon.", "noon"),
    reads("What does notes.txt say about the deadline?", "notes.txt", NOTES, "14 March"),
    reads("Read README.md and tell me what loopctl is.", "README.md", README, "agent loop"),
    reads("Which colour is in docs/paint.txt?", "docs/paint.txt", "The room is green.", "green"),
    reads("Summarise report.md.", "report.md", "Sales rose by 12 percent in May.", "12"),
    reads("Open todo.txt. What comes first?", "todo.txt", "1. Buy milk\n2. Call Anna", "milk"),
    reads("What is in the file data/list.csv?", "data/list.csv", "name,age\nMia,31", "Mia"),
    reads("Please read config.toml and tell me the port.", "config.toml", "port = 8080", "8080"),
    reads("Who wrote letter.txt?", "letter.txt", "Dear Sam, see you soon. Clara", "Clara"),
    reads("Tell me what is in shopping.txt", "shopping.txt", "Eggs, bread, tea.", "read"),
    reads("What does memo.txt say about Anna?", "memo.txt", "Anna starts in May.", "May"),
    reads("Find the phone number in contacts.txt.", "contacts.txt", "Office: 555-0199", "0199"),
    reads("What does plan.md say?", "plan.md", "Ship it on Monday.", "Monday", WEATHER, ADD),
    reads("Read poem.txt, what is its title?", "poem.txt", "The Old Oak\n\nI sat.", "Oak", WEATHER),
    Case(
        "What is the weather in Paris?",
        (WEATHER,),
        "get_weather",
        {"city": "Paris"},
        "Sunny",
        "unn",
    ),
    Case(
        "How is the weather in Lima?", (WEATHER,), "get_weather", {"city": "Lima"}, "Cloudy", "loud"
    ),
    Case("Is it raining in London?", (WEATHER,), "get_weather", {"city": "London"}, "Rain", "ain"),
    Case("Weather in Cairo?", (WEATHER, ADD), "get_weather", {"city": "Cairo"}, "Hot, 38C", "38"),
    Case(
        "What is the weather in Madrid?",
        (READ, WEATHER, ADD),
        "get_weather",
        {"city": "Madrid"},
        "Clear, 28C",
        "28",
    ),
    Case("Add 12 and 30.", (ADD,), "add", {"a": 12, "b": 30}, "42", "42"),
    Case("What is 25 plus 17?", (ADD,), "add", {"a": 25, "b": 17}, "42", "42"),
    Case("Add 100 and 250.", (WEATHER, ADD), "add", {"a": 100, "b": 250}, "350", "350"),
    Case("What is 7 plus 8?", (READ, WEATHER, ADD), "add", {"a": 7, "b": 8}, "15", "15"),
    Case("What time is it in Tokyo?", (TIME,), "get_time", {"city": "Tokyo"}, "14:35", "14:35"),
    Case(
        "What time is it in Berlin?",
        (WEATHER, TIME),
        "get_time",
        {"city": "Berlin"},
        "09:12",
        "09:12",
    ),
    Case(
        "What is the capital of Norway?",
        (CAPITAL,),
        "find_capital",
        {"country": "Norway"},
        "Oslo",
        "Oslo",
    ),
    Case(
        "Find the capital of Kenya.",
        (WEATHER, CAPITAL, ADD),
        "find_capital",
        {"country": "Kenya"},
        "Nairobi",
        "Nairobi",
    ),
    Case("Hello!", (READ,)),
    Case("Good morning!", (WEATHER,)),
    Case("How are you today?", (READ,)),
    Case("Thank you, goodbye.", (WEATHER, ADD)),
)


async def ask(client: ModelClient, case: Case) -> tuple[list[bool], str]:
    """What was right of the four columns, and what the model did."""
    question = Message.user(case.question)
    reply = (await client.complete(ModelRequest(messages=(question,), tools=case.tools))).message
    if not case.call:
        said = not reply.calls and bool(reply.text)
        return [said] * 4, reply.text or str(reply.calls)
    if not reply.calls or reply.calls[0].name != case.call:
        return [False] * 4, reply.text or str(reply.calls)
    call = reply.calls[0]
    right = call.parse() == case.arguments
    result = Message.user(ToolResultPart(call.id, call.name, case.result))
    messages = (question, reply, result)
    answer = (await client.complete(ModelRequest(messages=messages, tools=case.tools))).message
    ended = bool(answer.text) and not answer.calls
    done = f"{call.arguments} -> {answer.text or answer.calls}"
    return [True, right, ended, ended and case.fact in answer.text], done


async def measure(mode: str) -> None:
    """Ask everything one way and print the table."""
    client = connect("local", tools=mode)
    totals = [0] * 4
    begun = time.perf_counter()
    print(f"\n{mode}: tool arguments ended fact seconds")
    for case in CASES:
        start = time.perf_counter()
        try:
            right, done = await ask(client, case)
        except LoopError as error:
            right, done = [False] * 4, repr(error)
        seconds = time.perf_counter() - start
        totals = [total + got for total, got in zip(totals, right, strict=True)]
        marks = "".join("+" if got else "-" for got in right)
        print(
            f"{marks} {seconds:5.1f}s {case.question} ({len(case.tools)}) {done[:90]!r}", flush=True
        )
    count, seconds = len(CASES), time.perf_counter() - begun
    names = ("right tool", "right arguments", "ended with an answer", "answer holds the fact")
    shares = ", ".join(f"{name} {total}/{count}" for name, total in zip(names, totals, strict=True))
    print(f"{mode}: {shares}; {seconds / count:.1f} s for each question")
    await client.aclose()


async def main() -> None:
    for mode in sys.argv[1:] or ("native", "emulated"):
        await measure(mode)


if __name__ == "__main__":
    anyio.run(main)
