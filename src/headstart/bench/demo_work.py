"""The demo's work: a support desk for a railway, with tools that read and write real-looking things."""

from __future__ import annotations

from importlib import resources
from typing import Any

Tool = dict[str, Any]


def _tool(name: str, about: str, required: str, **fields: str) -> Tool:
    """A function schema; a field is ``type: description``, an enum ``one of a|b: description``."""
    properties: dict[str, Any] = {}
    for field, text in fields.items():
        kind, _, description = text.partition(": ")
        if kind.startswith("one of "):
            properties[field] = {"type": "string", "enum": kind[7:].split("|"), "description": description}
        else:
            properties[field] = {"type": kind, "description": description}
    parameters = {"type": "object", "properties": properties, "required": required.split()}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": parameters}}


TOOLS: list[Tool] = [
    _tool(
        "find_train",
        "Look up a train by its number or by the stations it connects. Returns the timetable, the running day, the "
        "current position and the delay in minutes. Use it before you answer any question about a departure.",
        "day",
        number="string: Train number as printed on the ticket, for example NV 214",
        start="string: Station where the journey begins; full name, no abbreviation",
        end="string: Station where the journey ends; full name, no abbreviation",
        day="string: Running day as YYYY-MM-DD",
        limit="integer: Most trains to return, 1 to 20",
    ),
    _tool(
        "read_booking",
        "Read a booking with its passengers, seats, fare rules and payments. A booking code has six letters and "
        "digits. Never read a booking that the traveller did not name.",
        "code",
        code="string: Booking code",
        include_history="boolean: Also return every change that was made to it",
    ),
    _tool(
        "change_booking",
        "Move a booking to another train or another day. The new train must serve the same two stations. The call "
        "returns the price difference and books nothing until confirm is true.",
        "code train day",
        code="string: Booking code",
        train="string: Number of the new train",
        day="string: New running day as YYYY-MM-DD",
        seat="one of window|aisle|any: Wanted place",
        confirm="boolean: True once the traveller has agreed to the price",
    ),
    _tool(
        "cancel_booking",
        "Cancel a booking or one passenger of it. Returns the refund and the way it is paid. Cancelling cannot be "
        "undone.",
        "code reason",
        code="string: Booking code",
        passenger="string: Name of the one passenger to cancel; leave out to cancel all of them",
        reason="one of illness|delay|strike|other: Why the journey does not take place",
    ),
    _tool(
        "refund_delay",
        "Work out what a traveller gets back for a late arrival. From 60 minutes it is a quarter of the fare, from 120 "
        "minutes half of it. The delay is measured at the last station of the booking, not on the way.",
        "code",
        code="string: Booking code",
        arrival="string: Real arrival as HH:MM",
        account="string: Where to pay it to, if not to the card that was used",
    ),
    _tool(
        "find_platform",
        "Say where a train stops at a station: platform, section of each coach, and the way there without stairs.",
        "train station",
        train="string: Train number",
        station="string: Station name",
        coach="integer: Coach number, to learn its section",
    ),
    _tool(
        "report_lost_item",
        "Open a search for something that was left behind. The crew looks for it at the last station; what is found is "
        "kept for ninety days. Describe colour, size and marks, never a guess at what it is worth.",
        "train day description",
        train="string: Train number",
        day="string: Day of the journey as YYYY-MM-DD",
        coach="integer: Coach number",
        description="string: What it looks like, in at most three sentences",
        contact="string: Telephone number or mail address of the owner",
    ),
    _tool(
        "list_disruptions",
        "List what keeps trains from running as planned: works, weather, closed lines. Each entry has an id, a line, a "
        "beginning, an expected end and the advice that staff give.",
        "region",
        region="one of north|east|south|west|all: Part of the network",
        since="string: Only entries that began after this time, as YYYY-MM-DD HH:MM",
    ),
    _tool(
        "order_assistance",
        "Ask for help at a station: a ramp, a guide, a place for a wheelchair. It has to be ordered two hours ahead; "
        "after that, call the station instead and tell the traveller that you did.",
        "station train kind",
        station="string: Station name",
        train="string: Train number",
        kind="one of ramp|guide|wheelchair|luggage: What is needed",
        note="string: Anything that the staff at the platform should know",
    ),
    _tool(
        "write_case",
        "Write a case for the colleagues of another desk. Use it when a tool refuses what the traveller is entitled "
        "to. A case without the facts in the first sentence comes back.",
        "desk summary",
        desk="one of fares|operations|complaints|groups: Who has to act",
        summary="string: What happened and what is asked for, at most 600 characters",
        code="string: Booking code, if one is concerned",
        urgent="boolean: True only if a traveller is on the way now",
    ),
    _tool(
        "send_message",
        "Send a text to a traveller by the channel that the booking names. Write it as you would say it at a counter.",
        "code text",
        code="string: Booking code",
        text="string: The message, at most 400 characters, without abbreviations",
        language="string: Two-letter code of the language; the booking's own if left out",
    ),
    _tool(
        "search_rules",
        "Search the rules of carriage and the fare conditions. Returns paragraphs with their numbers. Quote the number "
        "when you rely on a paragraph, and say so when none covers the case.",
        "query",
        query="string: A few words, not a sentence",
        section="one of tickets|luggage|bicycles|animals|delays|groups: Where to look",
        limit="integer: Most paragraphs to return, 1 to 10",
    ),
]

INSTRUCTIONS = (resources.files(__package__) / "demo_instructions.txt").read_text(encoding="utf-8")

TASKS = {
    "coordinator": "A tree lies on the line between Aldermere and Finch Hill. Split the work among three agents.",
    "sibling 1": "Find another way to Finch Hill for the school class on booking K7Q2MD.",
    "sibling 2": "Mrs Okafor sits in NV 214 and will miss her connection at Aldermere. Tell her what to do.",
    "sibling 3": "List what we owe the travellers of NV 208 if they arrive 130 minutes late.",
}
