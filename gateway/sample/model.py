"""A scripted model for the demo: it speaks ``generateContent`` and plays one trip, turn by turn. It understands nothing."""

from typing import Any

from aiohttp import web

from gateway.domain.json_values import is_object

PROMPT = "Find a hotel in Paris under $250 and book it for my itinerary."

_TURNS: tuple[list[dict[str, Any]], ...] = (
    [
        {"text": "I look for rooms and read the itinerary.", "thought": True},
        {
            "functionCall": {"id": "fc-1", "name": "search_hotels", "args": {"city": "Paris, France", "maxNightlyPriceUsd": 250}},
            "thoughtSignature": "ZGVtby1zaWduYXR1cmUtMQ==",
        },
        {"functionCall": {"id": "fc-2", "name": "get_itinerary", "args": {"itineraryId": "it-demo"}}},
    ],
    [
        {
            "functionCall": {"id": "fc-3", "name": "book_hotel", "args": {"hotelId": "h1", "itineraryId": "it-demo", "totalUsd": 450}},
            "thoughtSignature": "ZGVtby1zaWduYXR1cmUtMg==",
        },
    ],
    [{"text": "Your room at Hotel Lumière is booked for three nights, 450 USD in all.", "thoughtSignature": "ZGVtby1zaWduYXR1cmUtMw=="}],
)


def create_app() -> web.Application:
    """The service; what it says depends only on how many turns of its own a request holds."""
    app = web.Application(client_max_size=8 * 1024 * 1024)
    app.router.add_post("/v1beta/models/{model}:generateContent", _generate)
    return app


async def _generate(request: web.Request) -> web.Response:
    body: Any = await request.json()
    contents: Any = body.get("contents") if is_object(body) else None
    said = sum(1 for content in contents or () if is_object(content) and content.get("role") == "model")
    parts = _TURNS[min(said, len(_TURNS) - 1)]
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    return web.json_response({"candidates": [candidate], "usageMetadata": {"totalTokenCount": 400 + 300 * said}, "modelVersion": "demo"})
