/**
 * Refunds by a merchant: it requests one, its wallet signs the returned transfer, and that is relayed once. The nonce
 * is derived from the settlement and the number of the refund, so two identical refunds are the same transfer, here and
 * on the chain, even after the database was restored from a backup.
 */
import { getAddress, keccak256, stringToHex, type Hex } from "viem";
import { ApiError } from "../../errors.ts";
import type { Authorization } from "../../core/authorization.ts";
import { formatAtomic, parseAtomic, parsePayable } from "../../core/money.ts";
import { newId } from "../../core/ids.ts";
import { MAX_ORDER_SECONDS } from "../../core/orders.ts";
import { tokenDomainOf, type NetworkFacts } from "../../core/networks.ts";
import type { Refund, RefundOrder, RefundRequest } from "../../schemas/merchants.ts";
import type { PaymentResult } from "../facilitator/verify.ts";
import { TOKEN_SCHEME, TRANSFER_TYPES } from "../../schemes/index.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { orderNotSigned } from "../orders/orders.ts";
import type { Settlement } from "../settlement/types.ts";
import { isTaken, takenBy, type PaidRow, type Payee, type RefundRow } from "./store.ts";
import { MOST_REFUNDS, type RefundMade, type RefundToMake } from "./refund-store.ts";

interface RefundsDeps {
  networkOf(chainId: number): NetworkFacts | undefined;
  settlement: Pick<Settlement, "assertAvailable" | "wait">;
  /** The checks of every payment: the signature, the balance, and a simulation of the token's transfer. */
  check(body: object): Promise<PaymentResult>;
  isUsed(authorization: Authorization): Promise<boolean>;
  findPaid(payee: Payee, id: string): Promise<PaidRow | undefined>;
  readRefunds(settlementId: string): Promise<RefundRow[]>;
  make(refund: RefundToMake): Promise<RefundMade>;
  /** The database's clock. */
  now(): Promise<bigint>;
  waitMs: number;
}

interface Refunder extends Payee {
  /** Null if its account is in another cell. */
  id: string | null;
  /** The merchant whose gas share is charged; undefined for third parties. */
  merchant: string | undefined;
}

export class Refunds {
  readonly #deps: RefundsDeps;

  constructor(deps: RefundsDeps) {
    this.#deps = deps;
  }

  /** Without a signature it returns the order to sign. */
  async refund(owner: Refunder, settlementId: string, body: RefundRequest): Promise<RefundRow> {
    const paid = await this.#deps.findPaid(owner, settlementId);
    if (!paid) throw new ApiError("not_found", { detail: "You have no settlement with this id." });
    const network = this.#deps.networkOf(paid.chainId);
    if (!network)
      throw new ApiError("chain_unavailable", {
        detail: `The network eip155:${paid.chainId} is no longer configured on this service.`,
      });
    const refunds = await this.#deps.readRefunds(paid.id);
    const { authorization } = body;
    if (authorization === undefined)
      throw await this.#requestSignature({ paid, network, refunds, amount: body.amount });
    const order = readOrder(authorization.order, paid);
    if (body.amount !== undefined && readAmount(body.amount) !== order.value)
      throw refuseField("invalid_amount", "body.amount", "differs from the signed amount");
    const known = refunds.find(({ nonce }) => nonce === order.nonce);
    if (!known)
      await this.#make(owner, { paid, network, order, signature: authorization.signature });
    else if (known.valueAtomic !== order.value) throw new ApiError("refund_changed");
    return this.#follow(paid.id, order.nonce);
  }

  /** Throws the order to sign: nothing happens before the wallet has signed. */
  async #requestSignature(request: {
    paid: PaidRow;
    network: NetworkFacts;
    refunds: RefundRow[];
    amount: string | undefined;
  }): Promise<ApiError> {
    const { paid, network, refunds } = request;
    const left = leftOf(paid, refunds);
    const amount = request.amount === undefined ? left : readAmount(request.amount);
    if (amount > left) throw tooMuch(left);
    const validBefore = (await this.#deps.now()) + BigInt(MAX_ORDER_SECONDS);
    const number = refunds.reduce((most, refund) => Math.max(most, refund.number + 1), 0);
    const order = refundOf(paid, { number, value: amount, validBefore });
    // Only this refund uses this nonce: if it is used, the refund was made, and this ledger was restored to an earlier
    // state or never had it.
    if (await this.#deps.isUsed(order))
      throw new ApiError("refund_changed", {
        detail: `The chain has a refund of this payment that this ledger does not have (nonce ${order.nonce}). Purser makes no more refunds of it.`,
      });
    const wire = orderOnWire(order);
    return new ApiError("owner_signature_required", {
      detail: "The merchant's wallet must sign this transfer back to the payer.",
      extra: {
        order: wire,
        typedData: {
          types: TRANSFER_TYPES,
          primaryType: "TransferWithAuthorization",
          domain: tokenDomainOf(network),
          message: wire,
        },
        expiresAt: new Date(Number(validBefore) * 1000).toISOString(),
      },
    });
  }

  async #make(
    owner: Refunder,
    signed: { paid: PaidRow; network: NetworkFacts; order: Authorization; signature: string },
  ): Promise<void> {
    const { paid, network, order } = signed;
    const now = await this.#deps.now();
    if (order.validBefore <= now) throw new ApiError("signature_expired");
    if (order.validBefore > now + BigInt(MAX_ORDER_SECONDS))
      throw refuseField(
        "validation_failed",
        "body.authorization.order.validBefore",
        "is too far in the future",
      );
    const checked = await this.#deps.check(asPayment(signed));
    if (!checked.isValid) throw refusalOf(checked, paid);
    await this.#deps.settlement.assertAvailable(network.chainId, { kind: "refund" });
    const made = await this.#deps.make({
      id: newId("rfd"),
      owner,
      settlementId: paid.id,
      authorization: checked.authorization,
      numberOf: (due) => (refundNonce(paid, due) === order.nonce ? due : undefined),
      merchant: owner.merchant,
    });
    switch (made.outcome) {
      case "too_much":
        throw tooMuch(made.leftAtomic);
      case "gone":
        throw new ApiError("not_refundable", { detail: "The payment is no longer settled." });
      case "out_of_turn":
      case "other_use":
        throw new ApiError("refund_changed");
      case "made":
      case "known":
    }
  }

  /** A repeat of the same request returns the same refund. */
  async #follow(settlementId: string, nonce: string): Promise<RefundRow> {
    const find = async (): Promise<RefundRow> => {
      const refunds = await this.#deps.readRefunds(settlementId);
      const found = refunds.find((refund) => refund.nonce === nonce);
      if (!found) throw new Error("a refund that was made is gone");
      return found;
    };
    const row = await find();
    if (row.status !== "queued" && row.status !== "submitted") return row;
    await this.#deps.settlement.wait(row.id, this.#deps.waitMs);
    return find();
  }
}

type PaidKey = Pick<PaidRow, "chainId" | "asset" | "from" | "to" | "nonce">;

/** From the payment's own key, which is unique across all our databases. */
const refundNonce = (paid: PaidKey, number: number): Hex =>
  keccak256(
    stringToHex(
      ["purser refund", paid.chainId, paid.asset, paid.from, paid.nonce, number].join(" "),
    ),
  );

const refundOf = (
  paid: PaidRow,
  { number, value, validBefore }: { number: number; value: bigint; validBefore: bigint },
): Authorization => ({
  chainId: paid.chainId,
  asset: paid.asset,
  from: paid.to,
  to: paid.from,
  value,
  validAfter: 0n,
  validBefore,
  nonce: refundNonce(paid, number),
});

const orderOnWire = (order: Authorization): RefundOrder => ({
  from: getAddress(order.from),
  to: getAddress(order.to),
  value: String(order.value),
  validAfter: String(order.validAfter),
  validBefore: String(order.validBefore),
  nonce: order.nonce,
});

/** Compares the signed order with the settlement: it must go from its payee to its payer. */
function readOrder(wire: RefundOrder, paid: PaidRow): Authorization {
  const value = parseAtomic(wire.value);
  const validAfter = parseAtomic(wire.validAfter);
  const validBefore = parseAtomic(wire.validBefore);
  if (value === undefined || validAfter !== 0n || validBefore === undefined)
    throw refuseField("validation_failed", "body.authorization.order", "has a number out of range");
  if (value === 0n)
    throw refuseField("invalid_amount", "body.authorization.order.value", "must be above zero");
  if (wire.from.toLowerCase() !== paid.to)
    throw orderNotSigned("The wallet that received the payment must sign the refund.");
  if (wire.to.toLowerCase() !== paid.from)
    throw refuseField(
      "validation_failed",
      "body.authorization.order.to",
      "is not the payer of this settlement",
    );
  const nonce = wire.nonce.toLowerCase() as Hex;
  return {
    ...refundOf(paid, { number: 0, value, validBefore }),
    nonce,
  };
}

function readAmount(text: string): bigint {
  const amount = parsePayable(text);
  if (!amount.ok) throw refuseField("invalid_amount", "body.amount", amount.reason);
  return amount.atomic;
}

/** The rest that can be refunded, if the settlement is final. */
function leftOf(paid: PaidRow, refunds: readonly RefundRow[]): bigint {
  if (paid.status === "settled" && !paid.isFinal) throw new ApiError("settlement_not_final");
  const left = refundableOf(paid, refunds);
  if (left === 0n)
    throw new ApiError("not_refundable", {
      ...(refunds.length >= MOST_REFUNDS && {
        detail: `A payment can have at most ${MOST_REFUNDS} refunds.`,
      }),
      extra: { refundable: "0" },
    });
  return left;
}

const refundableOf = (
  paid: Pick<PaidRow, "isFinal" | "amountAtomic">,
  refunds: readonly RefundRow[],
): bigint =>
  paid.isFinal && refunds.length < MOST_REFUNDS ? paid.amountAtomic - takenBy(refunds) : 0n;

const tooMuch = (leftAtomic: bigint): ApiError =>
  new ApiError("not_refundable", {
    detail: `At most ${formatAtomic(leftAtomic)} USDC of this payment can be refunded.`,
    extra: { refundable: formatAtomic(leftAtomic) },
  });

/** The refund as a payment that requires exactly what was signed. */
function asPayment(signed: {
  network: NetworkFacts;
  order: Authorization;
  signature: string;
}): object {
  const { network, order, signature } = signed;
  const requirements = {
    scheme: TOKEN_SCHEME.name,
    network: network.id,
    asset: order.asset,
    amount: String(order.value),
    payTo: order.to,
    maxTimeoutSeconds: MAX_ORDER_SECONDS,
    extra: TOKEN_SCHEME.requirementExtra(network),
  };
  return {
    x402Version: 2,
    paymentPayload: {
      x402Version: 2,
      accepted: requirements,
      payload: TOKEN_SCHEME.proofPayload({ ...order, signature: signature as Hex }),
    },
    paymentRequirements: requirements,
  };
}

function refusalOf(
  { reason, message }: { reason: string; message: string },
  paid: PaidRow,
): ApiError {
  if (reason === "invalid_exact_evm_signature")
    return orderNotSigned("The refund is not signed by the wallet that received the payment.");
  if (reason === "invalid_exact_evm_payload_authorization_valid_before")
    return new ApiError("signature_expired");
  if (reason === "address_screened")
    return new ApiError("payee_screened", { detail: "This service does not make this refund." });
  if (reason === "screening_unavailable") return new ApiError(reason);
  if (reason === "amount_below_floor") return new ApiError("amount_below_floor");
  if (reason === "invalid_exact_evm_insufficient_balance")
    return new ApiError("insufficient_funds", {
      detail: "Your wallet does not have this amount on the payment's network.",
      extra: { fundingAddress: getAddress(paid.to) },
    });
  return new ApiError("refund_refused", { detail: message, extra: { reason } });
}

export const presentRefund = (row: RefundRow, network: string): Refund => ({
  id: row.id,
  settlementId: row.settlementId,
  status: row.status === "settled" ? "settled" : isTaken(row) ? "pending" : "failed",
  amount: formatAtomic(row.valueAtomic),
  network,
  payer: getAddress(row.payer),
  txHash: row.txHash,
  final: row.isFinal && row.status === "settled",
  errorReason: row.errorReason,
  createdAt: row.createdAt.toISOString(),
  settledAt: row.settledAt?.toISOString() ?? null,
});
