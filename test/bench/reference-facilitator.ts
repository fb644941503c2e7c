// The reference facilitator, as published by its authors, behind a minimal HTTP server.
import { createServer, type IncomingMessage } from "node:http";
import { x402Facilitator } from "@x402/core/facilitator";
import { toFacilitatorEvmSigner } from "@x402/evm";
import { BatchSettlementEvmScheme } from "@x402/evm/batch-settlement/facilitator";
import { ExactEvmScheme } from "@x402/evm/exact/facilitator";
import { UptoEvmScheme } from "@x402/evm/upto/facilitator";
import { createWalletClient, defineChain, http, nonceManager, publicActions, type Hex } from "viem";
import { privateKeyToAccount } from "viem/accounts";

const rpcUrl = process.env["REFERENCE_RPC_URL"] ?? "";
const chainId = Number(process.env["REFERENCE_CHAIN_ID"]);
const key = process.env["REFERENCE_PRIVATE_KEY"] as Hex;
const port = Number(process.env["REFERENCE_PORT"]);

const chain = defineChain({
  id: chainId,
  name: "bench",
  nativeCurrency: { name: "Native", symbol: "NATIVE", decimals: 18 },
  rpcUrls: { default: { http: [rpcUrl] } },
});
// Its best configuration: viem's nonce manager, and frequent polling for receipts.
const account = privateKeyToAccount(key, { nonceManager });
const client = createWalletClient({
  account,
  chain,
  transport: http(rpcUrl, { timeout: 60_000 }),
  pollingInterval: 100,
}).extend(publicActions);

const signer = toFacilitatorEvmSigner({
  address: account.address,
  readContract: (args) => client.readContract({ ...args, args: args.args ?? [] }),
  verifyTypedData: (args) => client.verifyTypedData(args as never),
  writeContract: (args) => client.writeContract(args),
  sendTransaction: (args) => client.sendTransaction(args as never),
  waitForTransactionReceipt: (args) => client.waitForTransactionReceipt(args),
  getCode: (args) => client.getCode(args),
});
const facilitator = new x402Facilitator()
  .register(`eip155:${chainId}`, new ExactEvmScheme(signer))
  .register(`eip155:${chainId}`, new UptoEvmScheme(signer))
  .register(`eip155:${chainId}`, new BatchSettlementEvmScheme(signer));

const server = createServer((request, response) => {
  void answer(request).then(({ status, body }) =>
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body)),
  );
});

async function answer(request: IncomingMessage): Promise<{ status: number; body: unknown }> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  try {
    if (request.url === "/supported") return { status: 200, body: facilitator.getSupported() };
    const { paymentPayload, paymentRequirements } = JSON.parse(
      Buffer.concat(chunks).toString(),
    ) as { paymentPayload: never; paymentRequirements: never };
    const body =
      request.url === "/verify"
        ? await facilitator.verify(paymentPayload, paymentRequirements)
        : await facilitator.settle(paymentPayload, paymentRequirements);
    return { status: 200, body };
  } catch (error) {
    return { status: 500, body: { error: String(error).slice(0, 300) } };
  }
}

server.listen(port, "127.0.0.1", () => console.error("ready"));
process.on("SIGTERM", () => process.exit(0));
