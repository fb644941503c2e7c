/**
 * Sends every request that may need the owner's signature. Where the server requires one, its order is
 * compared with the request, shown in plain words and signed, and the same request is sent again with the
 * signature.
 */
import { type Orders, REQUESTED_FORM, typedDataOf } from "../../../../packages/rules/src/orders.ts";
import { isSameAddress } from "../address.ts";
import { ApiError } from "../api.ts";
import { invalidate } from "../query-keys.ts";
import { currentSession, signerOf } from "../session.ts";
import { currentConnection, disconnect, isOnChain, reconnect } from "../wallet/connection.ts";
import { isRejection, showsOrders, walletError } from "../wallet/provider.ts";
import { signTypedData } from "../wallet/typed-data.ts";
import type { TypedData } from "../wire.ts";
import {
  AlreadyDone,
  type SignatureRequest,
  NotSigned,
  type Notice,
  OutcomeUnknown,
  type Reading,
  show,
  type Signer,
  type Signing,
} from "./signing.ts";

type Order = Record<string, unknown>;
interface Authorization {
  order: Order;
  signature: string;
  secondSignature?: string;
}

/**
 * The part of a body that is added once it is signed: `{...body, ...authorization}` works for both attempts.
 */
type MaybeSigned = { authorization?: Authorization };

export async function signed<T>(
  request: SignatureRequest,
  send: (signed: MaybeSigned) => Promise<T>,
): Promise<T> {
  let order: Order;
  try {
    return await send({});
  } catch (error) {
    order = orderIn(error);
  }
  return signOrder(request, send, order);
}

/** The same for an order that is known already. */
export async function signOrder<T>(
  request: SignatureRequest,
  send: (signed: MaybeSigned) => Promise<T>,
  order: Order,
): Promise<T> {
  try {
    return await signAndSend(request, send, order);
  } catch (error) {
    if (error instanceof ApiError && error.isWaiting) void invalidate.afterWaiting();
    // Another wallet than that of the session may be connected; without its order it has no place here.
    if (request.signers && !isSameAddress(currentConnection()?.address, sessionSigner().address))
      disconnect();
    throw error;
  } finally {
    show(null);
  }
}

/** The order that the server requires a signature for; any other failure is thrown to the caller. */
function orderIn(error: unknown): Order {
  if (error instanceof ApiError && /^(owner_signature_required|policy_changed)$/.test(error.code)) {
    const { order } = error.problem;
    if (typeof order === "object" && order !== null) return order as Order;
  }
  throw error;
}

async function signAndSend<T>(
  request: SignatureRequest,
  send: (signed: MaybeSigned) => Promise<T>,
  first: Order,
): Promise<T> {
  let order = first;
  let notice: Notice;
  for (;;) {
    const reading = await request.read(order);
    if (reading.hasUnseenChanges) notice ??= "changed";
    const typedData = typedDataFor(request, order);
    const { signers = [sessionSigner()] } = request;
    const [main] = signers;
    if (!main) throw new Error("a request without a signer");
    const authorization: Authorization = { order, signature: "" };
    const attempt: SigningAttempt = { request, reading, typedData, notice, signer: main };
    for (const signer of signers) {
      attempt.signer = signer;
      authorization[signer.signatureField] = await sign(attempt);
      attempt.notice = undefined;
    }
    const outcome = await sendSigned(attempt, order, () => send({ authorization }));
    if ("answer" in outcome) return outcome.answer;
    notice = outcome.notice;
    if (outcome.order) ({ order } = outcome);
    // An expired order is replaced by sending the request without a signature again.
    else if (notice === "expired")
      try {
        return await send({});
      } catch (error) {
        order = orderIn(error);
      }
  }
}

const typedDataFor = ({ kind, chainId }: SignatureRequest, order: Order): TypedData =>
  typeof kind === "string"
    ? typedDataOf(kind, order as unknown as Orders[typeof kind], chainId, REQUESTED_FORM)
    : kind(order);

interface SigningAttempt {
  request: SignatureRequest;
  reading: Reading;
  /** Shown by the dialog, and signed: the same object. */
  typedData: TypedData;
  notice: Notice;
  signer: Signer;
}

/** The recovery wallet where that one is signed in; the server refuses orders that it may not sign. */
function sessionSigner(): Signer {
  const session = currentSession();
  const address = session ? signerOf(session) : "";
  const description = "the account you are signed in with";
  return { address, description, signatureField: "signature" };
}

/** Waits until the user presses the button; rejects when the user cancels. */
function awaitPress(
  attempt: SigningAttempt,
  step: Signing["step"],
  onShown = () => {},
): Promise<void> {
  return new Promise((resolve, reject) => {
    const { request, reading, typedData, notice, signer } = attempt;
    show({
      request,
      changes: reading.changes,
      typedData,
      step,
      notice,
      signer,
      awaitPress: resolve,
      onShown,
      cancel: () => {
        reject(new NotSigned());
      },
    });
  });
}

/**
 * The wallet opens without another press only once, and only if the order contains nothing that the user has
 * not seen.
 */
async function sign(attempt: SigningAttempt): Promise<string> {
  const { request, signer, typedData } = attempt;
  let mayOpen = attempt.notice === undefined;
  // A passkey signs for one account, and is found again without a window.
  if (isPasskeyConnected() && !isSameAddress(currentConnection()?.address, signer.address))
    disconnect();
  if (mayOpen) await reconnect(signer.address);
  // Without a window that shows the order, the dialog shows it and waits for a press, unless the screen showed the changes.
  const opened = currentConnection();
  if (opened && !showsOrders(opened.wallet)) mayOpen &&= request.isOnScreen === true;
  for (;;) {
    const connection = currentConnection();
    const isReady =
      connection !== null &&
      isOnChain(connection, request.chainId) &&
      isSameAddress(connection.address, signer.address);
    if (!mayOpen || !isReady) {
      await awaitPress(attempt, "review");
      mayOpen = true;
      continue;
    }
    mayOpen = false;
    // The dialog explains the wallet's raw numbers, so it is on screen first.
    let onShown = () => {};
    const shown = new Promise<void>((resolve) => {
      onShown = resolve;
    });
    // A wallet may never respond, so the user can cancel the wait.
    const cancelled = awaitPress(attempt, "wallet", onShown);
    try {
      if (showsOrders(connection.wallet)) await Promise.race([shown, cancelled]);
      const signature = await Promise.race([signTypedData(connection, typedData), cancelled]);
      if (signature !== undefined) return signature;
      // The dialog has connected another way to sign.
      mayOpen = true;
    } catch (error) {
      if (error instanceof NotSigned) throw error;
      attempt.notice = isRejection(error) ? "declined" : { error: walletError(error) };
    }
  }
}

/** The server says why it refuses a passkey: removed, or counted back. */
const isPasskeyConnected = (): boolean => currentConnection()?.wallet.kind === "passkey";

type Outcome<T> = { answer: T } | { notice: Notice; order?: Order };

/**
 * Sends the signed order. If the response was lost the order may be sent again, because it works only once.
 */
async function sendSigned<T>(
  attempt: SigningAttempt,
  order: Order,
  send: () => Promise<T>,
): Promise<Outcome<T>> {
  for (;;) {
    void awaitPress(attempt, "sending").catch(() => {});
    try {
      return { answer: await send() };
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.code === "policy_changed") return { notice: "changed", order: orderIn(error) };
      if (error.code === "signature_expired") return { notice: "expired" };
      if (error.code === "invalid_signature")
        return { notice: isPasskeyConnected() ? { error } : "other-account", order };
      if (error.code === "order_used") throw new AlreadyDone();
      if (!error.isOutage) throw error;
    }
    attempt.notice = "lost";
    await awaitPress(attempt, "review").catch(() => {
      throw new OutcomeUnknown();
    });
  }
}
