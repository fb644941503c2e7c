// A signed-in owner with a wallet: the setup of most owner tests.
import type { FastifyInstance } from "fastify";
import type { Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { createSiweMessage } from "viem/siwe";
import type { Pool } from "pg";
import type { SealedWallet, WalletName } from "../../server/plugins/custody/envelope.ts";
import type { TestApp } from "./app.ts";

export interface SignedInOwner {
  account: PrivateKeyAccount;
  /** `name=value`, as a browser sends it. */
  cookie: string;
  /** Cookie, Origin and JSON: what the web app sends. */
  headers: Record<string, string>;
}

export type SiweParts = Partial<Parameters<typeof createSiweMessage>[0]>;

export async function freshNonce(app: FastifyInstance): Promise<string> {
  const answer = await app.inject({ method: "GET", url: "/api/auth/nonce" });
  return answer.json<{ nonce: string }>().nonce;
}

/** The sign-in message that a wallet shows for this server, with some fields replaced. */
export function siweMessage(
  { config }: Pick<TestApp, "config">,
  parts: SiweParts & { nonce: string; address: Hex },
): string {
  const { host, origin } = new URL(config.publicUrl);
  return createSiweMessage({
    domain: host,
    uri: origin,
    version: "1",
    chainId: config.networks[0].chainId,
    issuedAt: new Date(),
    expirationTime: new Date(Date.now() + 600_000),
    ...parts,
  });
}

export function verify(
  { app, config }: Pick<TestApp, "app" | "config">,
  body: { message: string; signature: string; owner?: string },
  headers: Record<string, string> = {},
) {
  return app.inject({
    method: "POST",
    url: "/api/auth/verify",
    headers: { origin: config.publicUrl, "content-type": "application/json", ...headers },
    payload: JSON.stringify(body),
  });
}

export async function signIn(
  testApp: Pick<TestApp, "app" | "config">,
  account: PrivateKeyAccount = privateKeyToAccount(generatePrivateKey()),
  /** The owner whose second wallet this is. */
  secondOf?: string,
): Promise<SignedInOwner> {
  const nonce = await freshNonce(testApp.app);
  const message = siweMessage(testApp, { nonce, address: account.address });
  const signature = await account.signMessage({ message });
  const answer = await verify(testApp, {
    message,
    signature,
    ...(secondOf === undefined ? {} : { owner: secondOf }),
  });
  const [setCookie] = [answer.headers["set-cookie"]].flat();
  if (answer.statusCode !== 200 || setCookie === undefined)
    throw new Error(`sign-in failed: ${answer.statusCode} ${answer.body}`);
  const cookie = setCookie.split(";", 1)[0] ?? "";
  return {
    account,
    cookie,
    headers: { cookie, origin: testApp.config.publicUrl, "content-type": "application/json" },
  };
}

/** Signs the order if the response requests a signature; undefined for any other response. */
export async function signOrder(
  account: Pick<PrivateKeyAccount, "signTypedData">,
  answer: unknown,
  /** A wallet that signs the same order, such as the recovery wallet that it names. */
  second?: Pick<PrivateKeyAccount, "signTypedData">,
): Promise<{ order: unknown; signature: Hex; secondSignature?: Hex } | undefined> {
  const { order, typedData } = answer as {
    order?: unknown;
    typedData?: Parameters<PrivateKeyAccount["signTypedData"]>[0];
  };
  if (order === undefined || typedData === undefined) return undefined;
  const signature = await account.signTypedData(typedData);
  const secondSignature = await second?.signTypedData(typedData);
  return { order, signature, ...(secondSignature && { secondSignature }) };
}

// A concurrent change makes the order outdated; then the newer one is signed, at most this often.
const MAX_SIGNATURES = 40;

/** Sends a body, and sends it again with the owner's signature as long as the response requests one. */
async function withSignature<Answer>(
  account: Pick<PrivateKeyAccount, "signTypedData">,
  body: object,
  exchange: { send: (body: object) => Promise<Answer>; read: (answer: Answer) => unknown },
  second?: Pick<PrivateKeyAccount, "signTypedData">,
): Promise<Answer> {
  let answer = await exchange.send(body);
  for (let count = 0; count < MAX_SIGNATURES; count += 1) {
    const authorization = await signOrder(account, exchange.read(answer), second);
    if (!authorization) break;
    answer = await exchange.send({ ...body, authorization });
  }
  return answer;
}

type Injected = Awaited<ReturnType<FastifyInstance["inject"]>>;

/** A request of the web app, including the wallet signature that it may need. */
export function asOwner(
  app: Pick<FastifyInstance, "inject">,
  owner: Pick<SignedInOwner, "account" | "headers">,
  request: { method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE"; url: string; body?: unknown },
  second?: Pick<PrivateKeyAccount, "signTypedData">,
): Promise<Injected> {
  const { method, url, body } = request;
  const send = (payload: unknown) =>
    app.inject({
      method,
      url,
      headers: owner.headers,
      ...(payload !== undefined && { payload: JSON.stringify(payload) }),
    });
  if (typeof body !== "object" || body === null) return send(body);
  const read = (answer: Injected): unknown =>
    answer.statusCode === 403 || answer.statusCode === 409 ? answer.json() : {};
  return withSignature(owner.account, body, { send, read }, second);
}

/** Names the owner's recovery wallet, which signs as well; null removes it. */
export async function nameRecoveryWallet(
  app: Pick<FastifyInstance, "inject">,
  owner: Pick<SignedInOwner, "account" | "headers">,
  wallet: PrivateKeyAccount | null,
): Promise<void> {
  const body = { address: wallet?.address ?? null };
  const url = "/api/recovery/second";
  const answer = await asOwner(app, owner, { method: "PUT", url, body }, wallet ?? undefined);
  if (answer.statusCode !== 200) throw new Error(answer.body);
}

/** All sealed wallets as custody reads them, for tests of the stored data. */
export async function sealedWallets(database: {
  pool: Pool;
}): Promise<(WalletName & SealedWallet)[]> {
  const { rows } = await database.pool.query<WalletName & SealedWallet>(
    `SELECT w.agent_id AS "agentId", w.address, w.kid, w.wrapped_data_key AS "wrappedDataKey", w.ciphertext,
            w.policy_digest AS "policyDigest", w.rules_digest AS "rulesDigest", w.revision,
            o.address AS "ownerAddress", o.chain_id::int AS "ownerChainId"
       FROM agent_wallets w JOIN agents a ON a.id = w.agent_id JOIN owners o ON o.id = a.owner_id
      ORDER BY w.agent_id`,
  );
  return rows;
}

export interface NewTestAgent {
  id: string;
  apiKey: string;
  keyId: string;
  walletAddress: Hex;
  /** `Authorization: Bearer`. */
  headers: Record<string, string>;
}

export async function createAgent(
  { app }: Pick<TestApp, "app">,
  owner: SignedInOwner,
  body: Record<string, unknown> = {},
): Promise<NewTestAgent> {
  const answer = await asOwner(app, owner, {
    method: "POST",
    url: "/api/agents",
    body: { name: "Test agent", dailyLimit: "10", allowlist: [], ...body },
  });
  if (answer.statusCode !== 201)
    throw new Error(`creating an agent failed: ${answer.statusCode} ${answer.body}`);
  const created = answer.json<{
    agent: { id: string; walletAddress: Hex };
    apiKey: string;
    key: { id: string };
  }>();
  return {
    id: created.agent.id,
    apiKey: created.apiKey,
    keyId: created.key.id,
    walletAddress: created.agent.walletAddress,
    headers: { authorization: `Bearer ${created.apiKey}`, "content-type": "application/json" },
  };
}
