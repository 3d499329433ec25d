"""The sample travel service: hotels, bookings, notifications and itineraries, in memory, with faults on order.

=======  ==========================  ===============================================================================
GET      /hotels?city=&max_price=    ``{"matches": [{hotelId, name, nightlyUsd}]}``
POST     /bookings                   ``{hotelId, itineraryId, totalUsd, cardToken?}`` -> 201 booking; Idempotency-Key
GET      /bookings                   open bookings
GET      /bookings/by-reference/ref  an open booking by its reference or its Idempotency-Key; 404 once cancelled
DELETE   /bookings/ref               the cancelled booking; 404 where there is none (any more)
POST     /notifications              ``{to, text}`` -> 201 notification
GET      /notifications              all notifications
GET      /itineraries/id             an itinerary, for any id
POST     /faults                     ``{method, path, mode}``: the next such request goes wrong, see `faults.Mode`
=======  ==========================  ===============================================================================

Everything but GET wants ``Authorization: Bearer dev-token``. Faults answer ``{"error": "<sentence>"}``.
"""

import hmac
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import web

from gateway.sample.faults import Faults, Handler, Mode
from gateway.sample.hotels import HOTELS, find_hotels

DEV_TOKEN = "dev-token"  # noqa: S105 (public on purpose: the sample guards nothing)


def create_app() -> web.Application:
    """A fresh service that remembers nothing of another one."""
    service = _Travel()

    @web.middleware
    async def go_wrong_on_order(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await service.faults.pass_through(request, handler)

    app = web.Application(middlewares=[_require_token, go_wrong_on_order])
    app.add_routes(
        [
            web.get("/hotels", service.list_hotels),
            web.post("/bookings", service.book),
            web.get("/bookings", service.list_bookings),
            web.get("/bookings/by-reference/{ref}", service.find_booking),
            web.delete("/bookings/{ref}", service.cancel),
            web.post("/notifications", service.notify),
            web.get("/notifications", service.list_notifications),
            web.get("/itineraries/{id}", service.get_itinerary),
            web.post("/faults", service.order_fault),
        ]
    )
    return app


@dataclass
class _Booking:
    document: dict[str, Any]
    request: dict[str, Any]
    key: str | None
    is_open: bool = True


class _Travel:
    def __init__(self) -> None:
        self.faults = Faults()
        self._bookings: dict[str, _Booking] = {}
        self._by_key: dict[str, _Booking] = {}
        self._notifications: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)

    async def list_hotels(self, request: web.Request) -> web.Response:
        max_price = _read_price(request.query.get("max_price"))
        return web.json_response({"matches": [hotel.as_match() for hotel in find_hotels(request.query.get("city"), max_price)]})

    async def book(self, request: web.Request) -> web.Response:
        body = await _read_object(request, "hotelId", "itineraryId", "totalUsd")
        key = request.headers.get("Idempotency-Key")
        earlier = self._by_key.get(key) if key else None
        if earlier is not None:
            if earlier.request != body:
                return _error(422, "this Idempotency-Key was used for another booking")
            return web.json_response(earlier.document, status=201, headers={"Idempotency-Replayed": "true"})
        if all(hotel.hotel_id != body["hotelId"] for hotel in HOTELS):
            return _error(422, "there is no such hotel")
        total = body["totalUsd"]
        if isinstance(total, bool) or not isinstance(total, int | float) or not 0 < total < math.inf:
            return _error(422, "totalUsd must be a positive number")
        reference = f"b-{next(self._numbers)}"
        document = {"bookingRef": reference, "hotelId": body["hotelId"], "itineraryId": body["itineraryId"], "totalUsd": total}
        booking = _Booking(document | {"chargedUsd": total, "status": "confirmed"}, body, key)
        self._bookings[reference] = booking
        if key:
            self._by_key[key] = booking
        return web.json_response(booking.document, status=201)

    async def list_bookings(self, _request: web.Request) -> web.Response:
        return web.json_response([booking.document for booking in self._bookings.values() if booking.is_open])

    async def find_booking(self, request: web.Request) -> web.Response:
        reference = request.match_info["ref"]
        booking = self._bookings.get(reference) or self._by_key.get(reference)
        # A cancelled booking is gone: that is how a probe sees that the cancellation happened.
        if booking is None or not booking.is_open:
            return _error(404, "there is no such open booking")
        return web.json_response(booking.document)

    async def cancel(self, request: web.Request) -> web.Response:
        booking = self._bookings.get(request.match_info["ref"])
        if booking is None or not booking.is_open:
            return _error(404, "there is no such open booking")
        booking.is_open = False
        return web.json_response(booking.document | {"status": "cancelled"})

    async def notify(self, request: web.Request) -> web.Response:
        body = await _read_object(request, "to", "text")
        notification = {"notificationId": f"n-{next(self._numbers)}", "to": body["to"], "text": body["text"]}
        self._notifications.append(notification)
        return web.json_response(notification, status=201)

    async def list_notifications(self, _request: web.Request) -> web.Response:
        return web.json_response(self._notifications)

    async def get_itinerary(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "itineraryId": request.match_info["id"],
                "city": "Paris, France",
                "arrival": "2026-05-04",
                "departure": "2026-05-07",
                "nights": 3,
            }
        )

    async def order_fault(self, request: web.Request) -> web.Response:
        body = await _read_object(request, "method", "path", "mode")
        if not isinstance(body["method"], str) or not isinstance(body["path"], str) or body["mode"] not in list(Mode):
            return _error(400, f"mode must be one of {', '.join(Mode)}")
        self.faults.order(body["method"], body["path"], Mode(body["mode"]))
        return web.json_response(body, status=201)


@web.middleware
async def _require_token(request: web.Request, handler: Handler) -> web.StreamResponse:
    given = request.headers.get("Authorization", "")
    if request.method != "GET" and not hmac.compare_digest(given.encode(), f"Bearer {DEV_TOKEN}".encode()):
        return _error(401, "wants the sample's token")
    return await handler(request)


async def _read_object(request: web.Request, *required: str) -> dict[str, Any]:
    try:
        body: object = await request.json()
    except ValueError:
        body = None
    if not isinstance(body, Mapping) or any(name not in body for name in required):
        raise web.HTTPBadRequest(text=f'{{"error": "wants a JSON object with {", ".join(required)}"}}', content_type="application/json")
    return dict(cast("Mapping[str, Any]", body))


def _read_price(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        raise web.HTTPBadRequest(text='{"error": "max_price must be a number"}', content_type="application/json") from None


def _error(status: int, sentence: str) -> web.Response:
    return web.json_response({"error": sentence}, status=status)
