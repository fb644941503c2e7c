import { ExactEvmScheme } from "@x402/evm";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";

const account = privateKeyToAccount(process.env.PRIVATE_KEY as `0x${string}`);
const network = "eip155:5042002";
const asset = "0x3600000000000000000000000000000000000000";
// Stock clients since 2.23 refuse assets they do not know: allow Arc's USDC, with a ceiling.
const client = new x402Client()
  .register(network, new ExactEvmScheme(account))
  .setSpendControls({ allowedAssets: [{ network, asset, maxAmountPerPayment: "1000000" }] });
const response = await wrapFetchWithPayment(fetch, client)(process.argv[2] ?? "");
console.log(response.status, await response.text());
