/**
 * The one way to whatever needs the owner's wallet: the request is sent; where the server asks for a signature, the order
 * is compared with what was asked for, told in plain words, signed, and the same request sent with it.
 */
import { isSameAddress } from "../address.ts";
import { ApiError } from "../api.ts";
import { queryClient } from "../query-client.ts";
import { keys } from "../query-keys.ts";
import { currentConnection, reconnect } from "../wallet/connection.ts";
import { isRejection, walletError } from "../wallet/provider.ts";
import { signTypedData } from "../wallet/typed-data.ts";
import type { Session } from "../wire.ts";
import {
  AlreadyDone,
  type Ask,
  NotSigned,
  type Notice,
  OutcomeUnknown,
  type Reading,
  show,
  type Signing,
} from "./signing.ts";
import { typedDataFor } from "./typed-data.ts";

type Order = Record<string, unknown>;
export interface Authorization {
  order: Order;
  signature: string;
}

/** What a body carries once it is signed: `{...body, ...authorization}` serves both tries. */
export type MaybeSigned = { authorization?: Authorization };

export async function signed<T>(ask: Ask, send: (signed: MaybeSigned) => Promise<T>): Promise<T> {
  let order: Order;
  try {
    return await send({});
  } catch (error) {
    order = orderIn(error);
  }
  try {
    return await signAndSend(ask, send, order);
  } finally {
    show(null);
  }
}

/** The order the server asks for; any other failure is the caller's. */
function orderIn(error: unknown): Order {
  if (error instanceof ApiError && /^(owner_signature_required|policy_changed)$/.test(error.code)) {
    const { order } = error.problem;
    if (typeof order === "object" && order !== null) return order as Order;
  }
  throw error;
}

async function signAndSend<T>(
  ask: Ask,
  send: (signed: MaybeSigned) => Promise<T>,
  first: Order,
): Promise<T> {
  let order = first;
  let notice: Notice;
  for (;;) {
    const reading = await ask.read(order);
    if (reading.isNews) notice ??= "changed";
    const turn: Turn = { ask, reading, order, notice };
    const authorization = { order, signature: await sign(turn) };
    const outcome = await hand(turn, () => send({ authorization }));
    if ("answer" in outcome) return outcome.answer;
    notice = outcome.notice;
    if (outcome.order) ({ order } = outcome);
    // An order that is over is replaced by asking as if for the first time.
    else if (notice === "expired")
      try {
        return await send({});
      } catch (error) {
        order = orderIn(error);
      }
  }
}

interface Turn {
  ask: Ask;
  reading: Reading;
  order: Order;
  notice: Notice;
}

/** The second wallet's where that one is signed in: the server refuses what is not its to sign. */
function signerAddress(): string {
  const session = queryClient.getQueryData<Session>(keys.session);
  return session?.second ?? session?.address ?? "";
}

/** Until the person presses; rejects when they do not want to. */
function press(turn: Turn, step: Signing["step"]): Promise<void> {
  return new Promise((resolve, reject) => {
    show({
      ask: turn.ask,
      changes: turn.reading.changes,
      step,
      notice: turn.notice,
      owner: signerAddress(),
      press: resolve,
      cancel: () => {
        reject(new NotSigned());
      },
    });
  });
}

/** The wallet opens by itself only for the press that began it, with nothing new to read; else it waits for another one. */
async function sign(turn: Turn): Promise<string> {
  const { ask, order } = turn;
  let mayOpen = turn.notice === undefined;
  if (mayOpen) await reconnect(signerAddress());
  // A wallet with no window of its own shows nothing: the words come first, and a press.
  if (currentConnection()?.wallet.kind === "demo") mayOpen &&= ask.isTold === true;
  for (;;) {
    const connection = currentConnection();
    const isReady =
      connection?.chainId === ask.chainId && isSameAddress(connection.address, signerAddress());
    if (!mayOpen || !isReady) {
      await press(turn, "review");
      mayOpen = true;
      continue;
    }
    mayOpen = false;
    // A wallet that never answers must not hold the screen: whoever cancels goes on without it.
    const cancelled = press(turn, "wallet");
    try {
      const { kind } = ask;
      const typedData =
        typeof kind === "string" ? typedDataFor(kind, order, ask.chainId) : kind(order);
      return String(await Promise.race([signTypedData(connection, typedData), cancelled]));
    } catch (error) {
      if (error instanceof NotSigned) throw error;
      turn.notice = isRejection(error) ? "declined" : { error: walletError(error) };
    }
  }
}

type Outcome<T> = { answer: T } | { notice: Notice; order?: Order };

/** Hands the signed order over. One whose answer was lost may be handed over again: it works once. */
async function hand<T>(turn: Turn, send: () => Promise<T>): Promise<Outcome<T>> {
  for (;;) {
    void press(turn, "sending").catch(() => {});
    try {
      return { answer: await send() };
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.code === "policy_changed") return { notice: "changed", order: orderIn(error) };
      if (error.code === "signature_expired") return { notice: "expired" };
      if (error.code === "invalid_signature") return { notice: "other-account", order: turn.order };
      if (error.code === "order_used") throw new AlreadyDone();
      if (!error.isOutage) throw error;
    }
    turn.notice = "lost";
    await press(turn, "review").catch(() => {
      throw new OutcomeUnknown();
    });
  }
}
