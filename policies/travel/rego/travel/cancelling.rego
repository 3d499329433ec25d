# METADATA
# title: Cancelling a booking
# description: A cancelled booking cannot be restored, so a person agrees to each cancellation.
# custom: {owner: travel-security, reason_codes: [CONFIRMATION_REQUIRED]}
package policies.travel.cancelling

confirm contains "CONFIRMATION_REQUIRED" if input.tool.name == "cancel_booking"
