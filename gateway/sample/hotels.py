"""The hotels that the sample service knows."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Hotel:
    """A hotel and its price a night in whole US dollars."""

    hotel_id: str
    name: str
    city: str
    nightly_usd: int

    def as_match(self) -> dict[str, str | int]:
        """Its entry in a search answer."""
        return {"hotelId": self.hotel_id, "name": self.name, "nightlyUsd": self.nightly_usd}


_PARIS, _ROME = "Paris, France", "Rome, Italy"

HOTELS = (
    Hotel("h1", "Hotel Lumière", _PARIS, 180),
    Hotel("h2", "Auberge du Canal", _PARIS, 90),
    Hotel("h3", "Maison des Arts", _PARIS, 145),
    Hotel("h4", "Hotel Beaurivage", _PARIS, 240),
    Hotel("h5", "Le Petit Jardin", _PARIS, 310),
    Hotel("h6", "Grand Hotel Montfleur", _PARIS, 400),
    Hotel("h7", "Pensione Trastevere", _ROME, 95),
    Hotel("h8", "Albergo della Fontana", _ROME, 130),
    Hotel("h9", "Hotel Aventino Verde", _ROME, 175),
    Hotel("h10", "Villa Gianicolo", _ROME, 220),
    Hotel("h11", "Residenza del Foro", _ROME, 290),
    Hotel("h12", "Palazzo Quirinetta", _ROME, 380),
)


def find_hotels(city: str | None, max_price: float | None) -> list[Hotel]:
    """Hotels of `city` (any where it is None) that cost at most `max_price` a night."""
    return [hotel for hotel in HOTELS if (city is None or hotel.city == city) and (max_price is None or hotel.nightly_usd <= max_price)]
