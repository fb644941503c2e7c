/** A faucet of test USDC on the local chain. */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import {
  getAddress,
  createPublicClient,
  createWalletClient,
  defineChain,
  http,
  type Address,
  type Hash,
  type Hex,
  toHex,
} from "viem";
import { privateKeyToAddress, privateKeyToAccount } from "viem/accounts";
import { LOCAL_CHAIN_ID } from "../../config.ts";
import { parseAddress } from "../../core/foreign-text.ts";
import { formatAtomic, parsePayable, type ParsedAmount } from "../../core/money.ts";
import { ApiError } from "../../errors.ts";
import { TOKEN_SCHEME } from "../../schemes/index.ts";
import { OUTBOUND_HEADER } from "../../infra/outbound/outbound.ts";
import {
  DemoSignature,
  DemoTransfer,
  FaucetAnswer,
  FaucetRequest,
  LocalInfo,
} from "../../schemas/local.ts";

/** Helpers of local mode. In production they are not registered, so they return 404. */
const routes: FastifyPluginAsyncTypebox = async (app) => {
  const { local } = app.config;
  const network = app.config.networks.find(({ chainId }) => chainId === LOCAL_CHAIN_ID);
  const rpcUrl = network?.rpcUrls[0];
  if (!local || !network || rpcUrl === undefined) return;
  // In local mode an agent may fetch from our own origin, but it must not fetch its owner's demo key: however the URL
  // is spelled, our outbound client marks the request with this header.
  app.addHook("onRequest", async (request) => {
    if (request.headers[OUTBOUND_HEADER] !== undefined)
      throw new ApiError("not_found", { detail: "Fetches cannot use this service's own routes." });
  });
  const faucet = createFaucet({
    rpcUrl,
    chainId: network.chainId,
    privateKey: local.faucetPrivateKey,
    usdc: network.usdc.address,
  });

  app.post(
    "/api/local/faucet",
    {
      config: {
        auth: "public",
        limit: "faucet",
        errors: ["not_found", "origin_not_allowed", "chain_unavailable"],
      },
      schema: {
        tags: ["local"],
        operationId: "requestFaucet",
        summary: "Free USDC of the local chain",
        body: FaucetRequest,
        response: { 200: FaucetAnswer },
      },
    },
    async (request, reply) => {
      // Programs send no Origin. Another site that is open in the same browser does, and gets nothing.
      if (request.headers.origin !== undefined) app.requireOwnOrigin(request);
      reply.removeHeader("access-control-allow-origin");
      const to = parseAddress(request.body.address);
      if (!to.ok) throw new ApiError("invalid_address", { detail: `body.address ${to.reason}` });
      const amount = readFaucetAmount(request.body.amount);
      if (!amount.ok)
        throw new ApiError("invalid_amount", { detail: `body.amount ${amount.reason}` });
      const txHash = await faucet
        .send({ to: to.address, amountAtomic: amount.atomic })
        .catch((cause: unknown) => {
          throw new ApiError("chain_unavailable", {
            cause,
            detail:
              "The local chain did not accept the faucet's transaction. Try again in a moment.",
          });
        });
      return {
        success: true as const,
        txHash,
        address: getAddress(to.address),
        amount: formatAtomic(amount.atomic),
      };
    },
  );

  app.get(
    "/api/local/info",
    {
      config: { auth: "public", errors: ["not_found"] },
      schema: {
        tags: ["local"],
        operationId: "getLocalInfo",
        summary: "The demo wallet of the local world",
        response: { 200: LocalInfo },
      },
    },
    async (_request, reply) => {
      // Although it is a test key, only our own web app may read it, not every site that is open in the same browser.
      reply.removeHeader("access-control-allow-origin").header("cache-control", "no-store");
      return {
        demoOwnerAddress: privateKeyToAddress(local.demoOwnerPrivateKey),
        demoOwnerPrivateKey: local.demoOwnerPrivateKey,
        faucet: true as const,
        faucetAmount: FAUCET.usualAmount,
        faucetMaxAmount: FAUCET.maxAmount,
      };
    },
  );

  const demoOwner = privateKeyToAccount(local.demoOwnerPrivateKey);
  app.get(
    "/api/local/demo-wallet.js",
    { config: { auth: "public" }, schema: { hide: true } },
    async (_request, reply) =>
      reply
        .type("text/javascript; charset=utf-8")
        .header("cache-control", "no-cache")
        .send(demoWalletScript(demoOwner.address, network.chainId)),
  );

  app.post(
    "/api/local/demo-wallet/sign",
    {
      config: {
        auth: "public",
        limit: "faucet",
        errors: ["origin_not_allowed", "invalid_address"],
      },
      schema: {
        hide: true,
        body: DemoTransfer,
        response: { 200: DemoSignature },
      },
    },
    async (request, reply) => {
      const { to, value, validAfter, validBefore, nonce } = request.body;
      const payee = parseAddress(to);
      if (!payee.ok) throw new ApiError("invalid_address", { detail: `body.to ${payee.reason}` });
      // Only for our own pages: another site that is open in the same browser gets no signature.
      app.requireOwnOrigin(request);
      reply.removeHeader("access-control-allow-origin").header("cache-control", "no-store");
      const digest = TOKEN_SCHEME.transferDigest(network, {
        chainId: network.chainId,
        asset: network.usdc.address,
        from: demoOwner.address,
        to: payee.address,
        value: BigInt(value),
        validAfter: BigInt(validAfter),
        validBefore: BigInt(validBefore),
        nonce: nonce as Hex,
      });
      const signature = await demoOwner.sign({ hash: toHex(digest) });
      return { signature };
    },
  );
};

export default routes;

/**
 * Announces the demo wallet to the pay page. It signs payments on the local chain only, and takes the test money that a
 * payment needs from the faucet.
 */
const demoWalletScript = (address: Address, chainId: number): string => `
const post = async (path, body) => {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const json = await answer.json();
  if (!answer.ok) throw new Error(json.detail);
  return json;
};
const provider = {
  async request({ method, params }) {
    if (method === "eth_requestAccounts") return ["${address}"];
    if (method === "eth_chainId") return "0x${chainId.toString(16)}";
    if (method !== "eth_signTypedData_v4") throw new Error("The demo wallet does not support " + method);
    const { from, ...transfer } = JSON.parse(params[1]).message;
    await post("/api/local/faucet", { address: from });
    return (await post("/api/local/demo-wallet/sign", transfer)).signature;
  },
};
const info = { uuid: "purser-demo", name: "the demo wallet", icon: "", rdns: "purser.demo" };
const announce = () => {
  const detail = Object.freeze({ info, provider });
  window.dispatchEvent(new CustomEvent("eip6963:announceProvider", { detail }));
};
window.addEventListener("eip6963:requestProvider", announce);
announce();
`;

/** Sends USDC on the local chain by a real mint transaction of the admin key. */

interface Faucet {
  /** Resolves when the transaction is in a block. */
  send(options: { to: Address; amountAtomic: bigint }): Promise<Hash>;
}

const MINT_ABI = [
  {
    type: "function",
    name: "mint",
    stateMutability: "nonpayable",
    inputs: [
      { name: "to", type: "address" },
      { name: "amount", type: "uint256" },
    ],
    outputs: [{ type: "bool" }],
  },
] as const;

const RECEIPT_TIMEOUT_MS = 15_000;

export function createFaucet(options: {
  rpcUrl: string;
  chainId: number;
  privateKey: `0x${string}`;
  usdc: Address;
}): Faucet {
  const account = privateKeyToAccount(options.privateKey);
  const chain = defineChain({
    id: options.chainId,
    name: "local chain",
    nativeCurrency: { name: "Native", symbol: "NATIVE", decimals: 18 },
    rpcUrls: { default: { http: [options.rpcUrl] } },
  });
  const transport = http(options.rpcUrl);
  const reader = createPublicClient({ chain, transport, pollingInterval: 100 });
  const sender = createWalletClient({ account, chain, transport });
  // One at a time: the node's pending count is the next nonce only without concurrent transactions.
  let last: Promise<unknown> = Promise.resolve();

  async function mint(to: Address, amountAtomic: bigint): Promise<Hash> {
    const nonce = await reader.getTransactionCount({
      address: account.address,
      blockTag: "pending",
    });
    return sender.writeContract({
      address: options.usdc,
      abi: MINT_ABI,
      functionName: "mint",
      args: [to, amountAtomic],
      nonce,
    });
  }

  return {
    async send({ to, amountAtomic }) {
      const sending = last.then(() => mint(to, amountAtomic));
      last = sending.catch(() => undefined);
      const hash = await sending;
      const receipt = await reader.waitForTransactionReceipt({
        hash,
        timeout: RECEIPT_TIMEOUT_MS,
        // Nothing else uses its nonces; and viem can miss a block that arrives while it looks for a replacement.
        checkReplacement: false,
      });
      if (receipt.status !== "success") throw new Error(`the faucet's mint ${hash} was reverted`);
      return hash;
    },
  };
}

/** Test money, but not so much that a typing mistake makes the demo unreadable. */
const FAUCET = { usualAmount: "100", maxAmount: "10000" } as const;

function readFaucetAmount(text: string = FAUCET.usualAmount): ParsedAmount {
  const parsed = parsePayable(text);
  const max = parsePayable(FAUCET.maxAmount);
  if (parsed.ok && max.ok && parsed.atomic > max.atomic)
    return { ok: false, reason: `must be at most ${FAUCET.maxAmount}` };
  return parsed;
}
