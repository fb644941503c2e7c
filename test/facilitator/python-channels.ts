// A seller and a buyer with payment channels as the published Python package (x402) makes them, with one framework or HTTP
// client or the other.

/** Its routes, and those of the TypeScript sellers beside it. */
export interface PaidRoute {
  price: unknown;
  extra?: object;
  extensions: ("eip2612GasSponsoring" | "erc20ApprovalGasSponsoring")[];
}

/** Reads FRAMEWORK, PORT, FACILITATOR_URL, NETWORK, PAY_TO, AUTHORIZER_KEY and ROUTES (JSON, by path). */
export const PYTHON_SELLER = `
import json, os
from x402.extensions.eip2612_gas_sponsoring import declare_eip2612_gas_sponsoring_extension
from x402.extensions.erc20_approval_gas_sponsoring import declare_erc20_approval_gas_sponsoring_extension
from x402.http import FacilitatorConfig, HTTPFacilitatorClient, HTTPFacilitatorClientSync
from x402.mechanisms.evm.batch_settlement.authorizer_signer import LocalAuthorizerSigner
from x402.mechanisms.evm.batch_settlement.server import (
    BatchSettlementEvmScheme,
    BatchSettlementEvmSchemeServerConfig,
)

NETWORK, PAY_TO, PORT = os.environ["NETWORK"], os.environ["PAY_TO"], int(os.environ["PORT"])
DECLARE = {
    "eip2612GasSponsoring": declare_eip2612_gas_sponsoring_extension,
    "erc20ApprovalGasSponsoring": declare_erc20_approval_gas_sponsoring_extension,
}
routes = {}
for path, route in json.loads(os.environ["ROUTES"]).items():
    extensions = {}
    for name in route["extensions"]:
        extensions.update(DECLARE[name]())
    accepts = {"scheme": "batch-settlement", "payTo": PAY_TO, "network": NETWORK, "price": route["price"]}
    if "extra" in route:
        accepts["extra"] = route["extra"]
    routes["GET " + path] = {"accepts": accepts, **({"extensions": extensions} if extensions else {})}
scheme = BatchSettlementEvmScheme(
    PAY_TO,
    BatchSettlementEvmSchemeServerConfig(
        receiver_authorizer_signer=LocalAuthorizerSigner(os.environ["AUTHORIZER_KEY"])
    ),
)
config = FacilitatorConfig(url=os.environ["FACILITATOR_URL"])
manager = scheme.create_channel_manager_sync(HTTPFacilitatorClientSync(config), NETWORK)


def paid():
    claims = manager.claim()
    settled = manager.settle()
    return {"claims": sum(claim.vouchers for claim in claims), "transaction": settled.transaction}


if os.environ["FRAMEWORK"] == "flask":
    import logging
    from flask import Flask, jsonify
    from x402 import x402ResourceServerSync
    from x402.http.middleware.flask import PaymentMiddleware

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = Flask(__name__)
    server = x402ResourceServerSync(HTTPFacilitatorClientSync(config))
    server.register(NETWORK, scheme)
    PaymentMiddleware(app, routes, server)
    for index, name in enumerate(routes):
        app.add_url_rule(name[4:], endpoint=str(index), view_func=lambda: jsonify({"secret": 42}))
    app.add_url_rule("/health", endpoint="health", view_func=lambda: jsonify({}))
    app.add_url_rule("/pay-out", endpoint="pay-out", methods=["POST"], view_func=lambda: jsonify(paid()))
    app.run(host="127.0.0.1", port=PORT)
else:
    import uvicorn
    from fastapi import FastAPI
    from x402 import x402ResourceServer
    from x402.http.middleware.fastapi import payment_middleware

    app = FastAPI()
    server = x402ResourceServer(HTTPFacilitatorClient(config))
    server.register(NETWORK, scheme)
    middleware = payment_middleware(routes, server)

    @app.middleware("http")
    async def pay(request, call_next):
        return await middleware(request, call_next)

    async def answer():
        return {"secret": 42}

    for name in routes:
        app.add_api_route(name[4:], answer, methods=["GET"])
    app.add_api_route("/health", lambda: {}, methods=["GET"])
    app.add_api_route("/pay-out", paid, methods=["POST"])
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
`;

/**
 * Reads HTTP_CLIENT, URL, RPC_URL, KEY, SALT and STEPS ("pay" or "refund", separated by commas), and prints a line of JSON
 * for each step.
 */
export const PYTHON_BUYER = `
import asyncio, json, os
from eth_account import Account
from x402 import x402Client, x402ClientSync
from x402.http import decode_payment_response_header
from x402.mechanisms.evm import EthAccountSignerWithRPC
from x402.mechanisms.evm.batch_settlement.client import (
    BatchSettlementEvmScheme,
    BatchSettlementEvmSchemeOptions,
    InMemoryClientChannelStorage,
)

URL = os.environ["URL"]
signer = EthAccountSignerWithRPC(Account.from_key(os.environ["KEY"]), rpc_url=os.environ["RPC_URL"])
scheme = BatchSettlementEvmScheme(
    signer,
    BatchSettlementEvmSchemeOptions(storage=InMemoryClientChannelStorage(), salt=os.environ["SALT"]),
)
is_sync = os.environ["HTTP_CLIENT"] == "requests"
client = x402ClientSync() if is_sync else x402Client()
client.register("eip155:*", scheme)
client.set_spend_controls(False)


def report(settled, status=200):
    print(json.dumps({
        "status": status,
        "success": settled is not None and settled.success,
        "transaction": settled.transaction if settled else "",
        "amount": settled.amount if settled else None,
        "error": settled.error_reason if settled else None,
    }), flush=True)


def report_response(response):
    header = response.headers.get("PAYMENT-RESPONSE")
    report(decode_payment_response_header(header) if header else None, response.status_code)


def pay_sync():
    from x402.http.clients import x402_requests

    session = x402_requests(client)
    for step in os.environ["STEPS"].split(","):
        if step == "refund":
            report(scheme.refund(URL))
        else:
            report_response(session.get(URL))


async def pay():
    import httpx
    from x402.http.clients import x402_httpx_transport

    async with httpx.AsyncClient(transport=x402_httpx_transport(client), timeout=60) as session:
        for step in os.environ["STEPS"].split(","):
            if step == "refund":
                report(await asyncio.to_thread(scheme.refund, URL))
            else:
                report_response(await session.get(URL))


pay_sync() if is_sync else asyncio.run(pay())
`;
