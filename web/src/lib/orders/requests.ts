/**
 * The orders that screens request the owner's signature for, each with the check that the server's order
 * matches the request.
 */
import {
  APPROVAL_SECONDS,
  MAX_ORDER_SECONDS,
  TEAM_ORDER_SECONDS,
} from "../../../../packages/rules/src/orders.ts";
import { isSameAddress } from "../address.ts";
import { api } from "../api.ts";
import { serverNowMs } from "../clock.ts";
import { formatUsdc, toDecimal } from "../money.ts";
import { currentSession } from "../session.ts";
import type { Agent, Approval, NewAgent } from "../wire.ts";
import { type SignatureRequest, OrderMismatch } from "./signing.ts";
import {
  type Change,
  diffTerms,
  isSameTerms,
  NO_TERMS,
  type PayeeInput,
  type Terms,
  termsOfAgent,
  termsOfOrder,
  termsWith,
  timeIn,
} from "./terms.ts";
import { formatDateTime } from "../time.ts";

type Order = Record<string, unknown>;

/** Allows for clock differences. */
const MARGIN_SECONDS = 5 * 60;

/** The chain id in a CAIP-2 id of an EVM chain. */
export const chainIdOf = (network: string): number => Number(network.split(":")[1]);

/** Members of a team have longer to sign. */
const orderSeconds = (): number =>
  currentSession()?.member ? TEAM_ORDER_SECONDS : MAX_ORDER_SECONDS;

export function assertSingleUse(order: Order, lifetimeSeconds = orderSeconds()): void {
  const latestMs = serverNowMs() + (lifetimeSeconds + MARGIN_SECONDS) * 1000;
  const isSingle = /^0x[0-9a-f]{64}$/i.test(String(order.nonce));
  if (!isSingle || !(Number(order.deadline) * 1000 < latestMs)) throw new OrderMismatch([]);
}

function assertFor(order: Order, agent: Pick<Agent, "id" | "walletAddress">): void {
  assertSingleUse(order);
  if (order.agent !== agent.id || !isSameAddress(String(order.wallet), agent.walletAddress))
    throw new OrderMismatch([
      {
        what: "Agent",
        before: agent.id,
        after: `${String(order.agent)} with wallet ${String(order.wallet)}`,
      },
    ]);
}

/** A change of an agent's rules: the order contains the whole resulting policy. */
export function policyRequest(options: {
  /** The agent as the screen shows it. */
  agent: Agent;
  title: string;
  /** Computes the rules after the change from those before. */
  apply: (terms: Terms) => Terms;
  /** Changes beside the rules, such as the end of a pause. */
  otherChanges?: Change[];
  isOnScreen?: boolean;
}): SignatureRequest {
  const { agent, apply, otherChanges = [] } = options;
  const shown = termsOfAgent(agent);
  return {
    kind: "AgentPolicy",
    title: options.title,
    isOnScreen: options.isOnScreen,
    chainId: chainIdOf(agent.network),
    async read(order) {
      assertFor(order, agent);
      const ordered = termsOfOrder(order);
      const changes = [...otherChanges, ...diffTerms(shown, ordered)];
      if (isSameTerms(ordered, apply(shown))) return { changes, hasUnseenChanges: false };
      // If the rules changed elsewhere since the screen was shown, the order contains those changes as well.
      const now = termsOfAgent(await api.get<Agent>(`/api/agents/${agent.id}`));
      if (isSameTerms(ordered, apply(now))) return { changes, hasUnseenChanges: true };
      throw new OrderMismatch(diffTerms(apply(now), ordered));
    },
  };
}

/** A new agent: the service creates its wallet, everything else must match the request. */
export function creationRequest(body: NewAgent, network: string): SignatureRequest {
  const { allowlist = [], authorization: _authorization, network: _network, ...rules } = body;
  const payees = allowlist.map((entry) =>
    typeof entry === "string" ? { address: entry } : (entry as PayeeInput),
  );
  const wanted = termsWith(NO_TERMS, { ...rules, payees });
  return {
    kind: "AgentPolicy",
    title: `Create ${wanted.name}`,
    isOnScreen: true,
    chainId: chainIdOf(network),
    read(order) {
      assertSingleUse(order);
      const ordered = termsOfOrder(order);
      if (!isSameTerms(ordered, wanted)) throw new OrderMismatch(diffTerms(wanted, ordered));
      return Promise.resolve({ changes: diffTerms(null, ordered), hasUnseenChanges: false });
    },
  };
}

/** A new key, or one that replaces another. */
export function keyRequest(options: {
  agent: Pick<Agent, "id" | "walletAddress" | "network" | "name">;
  title: string;
  /** What the label is of. */
  what?: string;
  label: string;
  expiresAt: string | null;
}): SignatureRequest {
  const until = (iso: string | null): string => (iso === null ? "never" : formatDateTime(iso));
  return {
    kind: "IssueKey",
    title: options.title,
    isOnScreen: true,
    chainId: chainIdOf(options.agent.network),
    read(order) {
      assertFor(order, options.agent);
      const label = String(order.label);
      const expiresAt = until(timeIn(order, "expiresAt"));
      if (label !== options.label || expiresAt !== until(options.expiresAt))
        throw new OrderMismatch([
          {
            what: "Key",
            before: `${options.label}, expires ${until(options.expiresAt)}`,
            after: `${label}, expires ${expiresAt}`,
          },
        ]);
      return Promise.resolve({
        changes: [
          { what: options.what ?? "New API key", before: "", after: label || "without a label" },
          { what: "For", before: "", after: options.agent.name },
          { what: "Expires", before: "", after: expiresAt },
        ],
        hasUnseenChanges: false,
      });
    },
  };
}

/** One payment that a rule denied: exactly as the screen shows it, to the atomic unit. */
export function approvalRequest(approval: Approval): SignatureRequest {
  const { agentId, agentName, payee, asset, amount, site, network } = approval;
  return {
    kind: "ApprovePayment",
    isOnScreen: true,
    title: `Allow ${agentName} one payment`,
    chainId: chainIdOf(network),
    effect: "Signing is free. The agent may then make this payment once, within an hour.",
    read(order) {
      assertSingleUse(order, APPROVAL_SECONDS);
      const isSame =
        order.agent === agentId &&
        order.approvalId === approval.id &&
        isSameAddress(String(order.payee), payee) &&
        isSameAddress(String(order.asset), asset) &&
        toDecimal(BigInt(String(order.maxAmount))) === amount &&
        order.site === (site ?? "");
      if (!isSame)
        throw new OrderMismatch([
          {
            what: "Payment",
            before: `${amount} to ${payee}${site === null ? "" : ` at ${site}`}`,
            after: `${String(order.maxAmount)} units to ${String(order.payee)} at ${String(order.site) || "no site"}`,
          },
        ]);
      return Promise.resolve({
        changes: [
          { what: "Agent", before: "", after: agentName },
          { what: "At most", before: "", after: `${formatUsdc(amount)} USDC` },
          { what: "To", before: "", after: payee },
          ...(site === null ? [] : [{ what: "Only at", before: "", after: site }]),
          { what: "How often", before: "", after: "once" },
        ],
        hasUnseenChanges: false,
      });
    },
  };
}
