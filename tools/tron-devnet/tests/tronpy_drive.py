"""Drives the devnet with an unchanged tronpy. Ends with 0 when every claim holds."""

import json
import sys
import urllib.request

from tronpy import Tron
from tronpy.exceptions import AddressNotFound, TransactionNotFound, TvmError, ValidationError
from tronpy.keys import PrivateKey
from tronpy.providers import HTTPProvider

url, key, to, token = sys.argv[1:5]
key = PrivateKey(bytes.fromhex(key))
owner = key.public_key.to_base58check_address()
client = Tron(HTTPProvider(url))


def admin(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}/admin/{path}", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def mine(blocks=1):
    return admin("produce", {"blocks": blocks})


def refuses(kind, call):
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was expected")


# TRX, with an activation.
refuses(AddressNotFound, lambda: client.get_account(to))
sent = client.trx.transfer(owner, to, 3_000_000).build().sign(key).broadcast()
assert client.get_transaction(sent.txid)["txID"] == sent.txid
refuses(TransactionNotFound, lambda: client.get_transaction_info(sent.txid))
mine()
info = client.get_transaction_info(sent.txid)
assert info["fee"] == 1_100_000, info
assert client.get_account_balance(to) == 3
refuses(TransactionNotFound, lambda: client.get_solid_transaction_info(sent.txid))
mine(30)
assert client.get_solid_transaction_info(sent.txid)["blockNumber"] == info["blockNumber"]
refuses(ValidationError, lambda: client.trx.transfer(owner, to, 10**15).build().sign(key).broadcast())

# A TRC-20 transfer, its result and its event.
contract = client.get_contract(token)
assert contract.functions.symbol() == "USDT"
assert contract.functions.decimals() == 6
sent = contract.functions.transfer(to, 250).with_owner(owner).fee_limit(100_000_000).build().sign(key).broadcast()
mine()
assert sent.result() is True
info = client.get_transaction_info(sent.txid)
assert info["receipt"]["result"] == "SUCCESS", info
(event,) = contract.events.Transfer.process_receipt(info)
assert event["args"]["value"] == 250, event
assert event["args"]["to"] == to, event
assert contract.functions.balanceOf(to) == 250
beyond = contract.functions.transfer(to, 10**17).with_owner(owner).fee_limit(100_000_000).build()
failed = beyond.sign(key).broadcast()
mine()
refuses(TvmError, failed.result)

# Readings.
parameters = {each["key"]: each.get("value", 0) for each in client.get_chain_parameters()}
assert parameters["getEnergyFee"] == 100
assert client.get_bandwidth(owner) >= 0
assert client.get_block(info["blockNumber"])["transactions"][0]["txID"] == sent.txid
paid = admin(f"payments?to={to}&token={token}")
assert (paid["count"], paid["total"]) == (1, "250"), paid
