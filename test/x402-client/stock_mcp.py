"""The published x402 MCP server and client: `serve` sells a tool, `pay` buys one. The second argument is JSON."""

import asyncio
import json
import sys

from x402 import x402Client, x402ResourceServer
from x402.http import FacilitatorConfig, HTTPFacilitatorClient
from x402.mcp import create_payment_wrapper
from x402.mcp.client import x402MCPSession
from x402.mechanisms.evm.exact import register_exact_evm_client, register_exact_evm_server
from x402.mechanisms.evm.signers import EthAccountSigner
from x402.schemas import AssetAmount, ResourceConfig, ResourceInfo


def serve(facilitator, network, asset, pay_to, port):
    from mcp.server.fastmcp import FastMCP

    server = x402ResourceServer(HTTPFacilitatorClient(FacilitatorConfig(url=facilitator)))
    register_exact_evm_server(server, network)
    server.initialize()
    price = AssetAmount(amount="10000", asset=asset, extra={"name": "USDC", "version": "2"})
    accepts = server.build_payment_requirements(
        ResourceConfig(scheme="exact", network=network, pay_to=pay_to, price=price)
    )
    paid = create_payment_wrapper(
        server, accepts=accepts, resource=ResourceInfo(url="mcp://tool/get_weather")
    )
    mcp = FastMCP("stock", host="127.0.0.1", port=port, log_level="WARNING")
    runs = []

    @mcp.tool(name="get_weather", description="Weather of a city")
    @paid
    async def get_weather(city: str) -> str:
        runs.append(city)
        return json.dumps({"city": city, "degrees": 21})

    @mcp.tool(name="runs", description="Which cities were requested")
    def ran() -> str:
        return json.dumps(runs)

    mcp.run(transport="streamable-http")


async def pay(url, key, tool, arguments):
    from eth_account import Account
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    client = x402Client()
    register_exact_evm_client(client, EthAccountSigner(Account.from_key(key)))
    # The published asset table has no entry for the local chain, so its spend controls would refuse it.
    client.set_spend_controls(False)
    async with streamablehttp_client(url) as (read, write, _):
        async with ClientSession(read, write) as session:
            paying = x402MCPSession(session, client, True)
            await paying.initialize()
            result = await paying.call_tool(tool, arguments)
            receipt = result.payment_response
            print(
                json.dumps(
                    {
                        "isError": result.is_error,
                        "paid": result.payment_made,
                        "text": [item.text for item in result.content],
                        "receipt": receipt and receipt.model_dump(by_alias=True),
                    }
                )
            )


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    serve(**given) if sys.argv[1] == "serve" else asyncio.run(pay(**given))
