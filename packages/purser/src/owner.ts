/**
 * The owner's side of `purser init`, `stop` and `resume`: signs in with a wallet (SIWE), and signs an agent's policy or the end
 * of a stop (EIP-712).
 */
import { isDeepStrictEqual } from "node:util";
import { getAddress, maxUint256, parseUnits } from "viem";
import { privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { createSiweMessage } from "viem/siwe";
import { type Problem, PurserError } from "./problem.ts";
import { sendRequest } from "./transport.ts";

const SIGN_IN_MINUTES = 10;
/** An order is valid for 15 minutes by the service's clock; the margin allows for clock differences. */
const LONGEST_ORDER_SECONDS = 20 * 60;
/** The value for no limit and no expiry. */
const ABSENT = String(maxUint256);

/**
 * The type of the signed policy is fixed here, so that the service cannot make the wallet sign anything else. A new
 * agent without optional settings has a document of version 1.
 */
export const POLICY_TYPES = {
  AgentPolicy: [
    { name: "agent", type: "string" },
    { name: "wallet", type: "address" },
    { name: "version", type: "uint256" },
    { name: "name", type: "string" },
    { name: "dailyLimit", type: "uint256" },
    { name: "weeklyLimit", type: "uint256" },
    { name: "monthlyLimit", type: "uint256" },
    { name: "perPaymentLimit", type: "uint256" },
    { name: "paymentsPerHour", type: "uint256" },
    { name: "fetch", type: "string" },
    { name: "expiresAt", type: "uint256" },
    { name: "payees", type: "Payee[]" },
    { name: "nonce", type: "bytes32" },
    { name: "deadline", type: "uint256" },
  ],
  Payee: [
    { name: "payee", type: "address" },
    { name: "label", type: "string" },
    { name: "site", type: "string" },
    { name: "dailyLimit", type: "uint256" },
    { name: "perPaymentLimit", type: "uint256" },
    { name: "expiresAt", type: "uint256" },
  ],
} as const;

/** Fixed here for the same reason. */
const RESUME_TYPES = {
  Resume: [
    { name: "owner", type: "address" },
    { name: "stoppedAt", type: "uint256" },
    { name: "nonce", type: "bytes32" },
    { name: "deadline", type: "uint256" },
  ],
} as const;

interface NewAgent {
  name: string;
  dailyLimit: string;
  allowlist: string[];
}

export interface Stopped {
  at: string;
  by: string;
  /** How many agents the stop paused. */
  agents: number;
}

interface CreatedAgent {
  agent: { id: string; walletAddress: string };
  apiKey: string;
}

type Order = Record<string, unknown>;

interface SignatureRequest extends Problem {
  order: Order;
  typedData: { domain: { chainId: number | string } };
}

/** What the owner signs, and the document that was requested; only the values that the service chooses come from its order. */
interface Signing {
  types: Record<string, readonly { name: string; type: string }[]>;
  primaryType: string;
  wanted: (chosen: Order) => Order;
}

/** A signed-in owner session; this process has the wallet's private key. */
export class OwnerSession {
  readonly #url: string;
  readonly #account: PrivateKeyAccount;
  #cookie = "";
  #chainId = 0;

  constructor(url: string, privateKey: string) {
    this.#url = url;
    this.#account = privateKeyToAccount(privateKey as `0x${string}`);
  }

  get address(): string {
    return this.#account.address;
  }

  async signIn(): Promise<void> {
    const { nonce } = await this.#call<{ nonce: string }>("GET", "/api/auth/nonce", "nonce");
    const service = await this.#call<{ supportedNetworks: string[] }>(
      "GET",
      "/api/x402",
      "supportedNetworks",
    );
    this.#chainId = Number(service.supportedNetworks[0]?.split(":")[1]);
    const { host, origin } = new URL(this.#url);
    const now = Date.now();
    const message = createSiweMessage({
      address: this.#account.address,
      chainId: this.#chainId,
      domain: host,
      expirationTime: new Date(now + SIGN_IN_MINUTES * 60_000),
      issuedAt: new Date(now),
      nonce,
      uri: origin,
      version: "1",
    });
    const signature = await this.#account.signMessage({ message });
    await this.#call("POST", "/api/auth/verify", "address", { message, signature });
  }

  signOut(): Promise<object> {
    return this.#call("POST", "/api/auth/logout", "success", {});
  }

  createAgent(wanted: NewAgent): Promise<CreatedAgent> {
    return this.#callSigned("/api/agents", "apiKey", wanted, {
      types: POLICY_TYPES,
      primaryType: "AgentPolicy",
      wanted: (chosen) => orderOf(wanted, chosen),
    });
  }

  /** Pauses every agent. Needs no signature. */
  async stop(): Promise<Stopped> {
    const { stopped } = await this.#call<{ stopped: Stopped }>(
      "POST",
      "/api/owner/stop",
      "stopped",
      {},
    );
    return stopped;
  }

  /** Returns how many agents are active again. */
  async resume(): Promise<number> {
    const { agents } = await this.#callSigned<{ agents: number }>(
      "/api/owner/resume",
      "agents",
      {},
      {
        types: RESUME_TYPES,
        primaryType: "Resume",
        wanted: (chosen) => resumeOf(this.address, chosen),
      },
    );
    return agents;
  }

  /** Signs only what was requested: an order from the service that differs is refused. */
  async #callSigned<T extends object>(
    path: string,
    member: string,
    body: object,
    { types, primaryType, wanted }: Signing,
  ): Promise<T> {
    try {
      return await this.#call("POST", path, member, body);
    } catch (error) {
      if (!(error instanceof PurserError) || error.code !== "owner_signature_required") throw error;
      const { order, typedData } = error.problem as SignatureRequest;
      if (
        !isDeepStrictEqual(order, wanted(order)) ||
        Number(typedData.domain.chainId) !== this.#chainId
      )
        throw new Error(
          `the order from ${this.#url} for the owner's signature differs from what was requested`,
          { cause: error },
        );
      const signature = await this.#account.signTypedData({
        domain: { name: "Purser", version: "2", chainId: this.#chainId },
        types,
        primaryType,
        message: order,
      });
      return this.#call("POST", path, member, { ...body, authorization: { order, signature } });
    }
  }

  async #call<T extends object>(
    method: "GET" | "POST",
    path: string,
    member: string,
    body?: object,
  ): Promise<T> {
    const takeCookie: typeof globalThis.fetch = async (input, init) => {
      const response = await fetch(input, init);
      for (const line of response.headers.getSetCookie())
        this.#cookie = line.split(";", 1)[0] ?? "";
      return response;
    };
    const { origin } = new URL(this.#url);
    const headers = { origin, ...(this.#cookie !== "" && { cookie: this.#cookie }) };
    const signal = AbortSignal.timeout(30_000);
    const request = { method, path, member, body, headers, signal };
    const answer = await sendRequest<T>(takeCookie, this.#url, request);
    if (answer.kind !== "success") throw new PurserError(answer.problem);
    return answer.value;
  }
}

/**
 * The first policy of a new agent. The service chooses only the agent's id and wallet, the nonce and the
 * deadline.
 */
function orderOf({ name, dailyLimit, allowlist }: NewAgent, chosen: Order): Order {
  const { agent, wallet } = chosen;
  const terms = { label: "", site: "", dailyLimit: ABSENT, perPaymentLimit: ABSENT };
  return {
    agent: typeof agent === "string" ? agent : "",
    wallet: typeof wallet === "string" ? wallet : "",
    version: "1",
    name: name.trim(),
    dailyLimit: String(parseUnits(dailyLimit, 6)),
    weeklyLimit: ABSENT,
    monthlyLimit: ABSENT,
    perPaymentLimit: ABSENT,
    paymentsPerHour: ABSENT,
    fetch: "any",
    expiresAt: ABSENT,
    payees: allowlist
      .map((address) => getAddress(address))
      .toSorted((left, right) => (left.toLowerCase() < right.toLowerCase() ? -1 : 1))
      .map((payee) => ({ payee, ...terms, expiresAt: ABSENT })),
    ...singleUse(chosen),
  };
}

/** The end of a stop. The service names the stop that it ends. */
function resumeOf(owner: string, chosen: Order): Order {
  const { stoppedAt } = chosen;
  const isTime = typeof stoppedAt === "string" && /^[0-9]{1,12}$/.test(stoppedAt);
  return { owner, stoppedAt: isTime ? stoppedAt : "", ...singleUse(chosen) };
}

function singleUse({ nonce, deadline }: Order): Order {
  const latest = Math.floor(Date.now() / 1_000) + LONGEST_ORDER_SECONDS;
  return {
    nonce: typeof nonce === "string" ? nonce : "",
    deadline: Number(deadline) <= latest ? String(deadline) : "",
  };
}
