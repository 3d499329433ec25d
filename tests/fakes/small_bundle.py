"""A small good bundle in a real folder; each test changes one thing of it."""

from pathlib import Path

from gateway.bundle import CheckedBundle, load_bundle
from gateway.domain.findings import Finding

FILES = {
    "bundle.yaml": "name: small\n",
    "tools/find_room.yaml": """\
name: find_room
title: Find a room
description: Find a free room.
risk: read
permissions: [room:read]
parameters:
  type: object
  additionalProperties: false
  required: [city]
  properties:
    city: {type: string, pattern: '\\S'}
    beds: {type: integer, enum: [1, 2]}
    wishes:
      type: object
      additionalProperties: false
      properties: {view: {type: string}}
execute:
  http:
    connection: rooms
    method: GET
    path: /rooms/{args.city}
    query: {beds: args.beds}
""",
    "tools/take_room.yaml": """\
name: take_room
title: Take a room
description: Take a room.
risk: write
permissions: [room:take]
parameters:
  type: object
  additionalProperties: false
  required: [room, price]
  properties:
    room: {type: string}
    price: {type: number, minimum: 0}
    card: {type: string}
replay: keyed
keyed: {header: Idempotency-Key, retention: 24h}
idempotency: {key: [subject, args.room, context.version], window: 30m}
cost: {usd: {arg: /price}}
execute:
  http: {connection: rooms, method: POST, path: /takes, body: {json: args}}
result: {no_match: {status: [404]}, failed: {status: [409]}}
record: {level: arguments, redact: [/args/card]}
""",
    "workflows.yaml": """\
taking:
  tools: [find_room, take_room]
  max_risk: write
  context:
    type: object
    required: [version]
    properties: {version: {type: string}}
  confirmation: {rule: other, permission: room:approve, valid_for: 10m}
""",
    "principals.yaml": """\
agents:
  helper:
    workflows: [taking]
    permissions: [room:read, room:take]
    act_for: [ada]
subjects:
  ada:
    permissions: [room:read, room:take]
    attributes: {timezone: Europe/Paris}
persons:
  dana:
    permissions: [room:approve]
""",
    "budgets.yaml": """\
- {name: calls_per_run, per: [run], unit: calls, limit: 40}
- name: spend_per_day
  per: [subject]
  unit: usd
  limit: "500.00"
  window: {every: day, timezone: UTC}
  tools: [take_room]
""",
    "rego/small/rooms.rego": """\
package policies.small.rooms

allow contains "POLICY_ALLOWED" if input.tool.name == "find_room"
""",
    "data/small/data.yaml": "limit: 3\n",
    "cases/rooms.yaml": """\
- name: rooms may be looked at
  agent: helper
  subject: ada
  workflow: taking
  tool: find_room
  args: {city: Rome}
  context: {version: "1"}
  now: 2026-03-01T10:00:00Z
  expect: {effect: allow, reason_code: POLICY_ALLOWED}
- name: taking one is not allowed by anything
  agent: helper
  subject: ada
  workflow: taking
  tool: take_room
  args: {room: r1, price: 10}
  context: {version: "1"}
  now: 2026-03-01T10:00:00+01:00
""",
}


class SmallBundle:
    """The folder of the small bundle and what is found in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for path, text in FILES.items():
            self.write(path, text)

    def write(self, path: str, text: str | bytes) -> None:
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())

    def change(self, path: str, old: str, new: str) -> None:
        text = (self.folder / path).read_text()
        assert text.count(old) == 1, f"{old!r} must stand once in {path}"
        self.write(path, text.replace(old, new))

    def load(self) -> CheckedBundle:
        loaded = load_bundle(self.folder)
        assert isinstance(loaded, CheckedBundle), loaded
        return loaded

    def findings(self) -> list[Finding]:
        loaded = load_bundle(self.folder)
        return list(loaded.warnings) if isinstance(loaded, CheckedBundle) else loaded

    def only(self) -> tuple[str, str, int]:
        """Code, file and line of the one finding that there must be."""
        found = self.findings()
        assert len(found) == 1, found
        assert found[0].message
        assert found[0].mend
        return found[0].code, found[0].file, found[0].line
