import { useCallback, useState } from "react";
import { ApiError } from "../../lib/api.ts";
import { withdrawalToSign } from "../../lib/orders/to-sign.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { Connection } from "../../lib/wallet/connection.ts";
import { isRejection, walletError } from "../../lib/wallet/provider.ts";
import { signTypedData } from "../../lib/wallet/typed-data.ts";
import type { Agent, PreparedWithdrawal, WithdrawalAnswer } from "../../lib/wire.ts";
import { findNetwork, useInfo } from "../../shared/info.ts";
import { executeWithdrawal, prepareWithdrawal } from "./api.ts";

interface Signed {
  prepared: PreparedWithdrawal;
  signature: string;
  idempotencyKey: string;
}

export type WithdrawalState =
  | { step: "form"; error?: unknown }
  | { step: "preparing" }
  | { step: "review"; prepared: PreparedWithdrawal; declined?: boolean; error?: unknown }
  | { step: "signing"; prepared: PreparedWithdrawal }
  | { step: "sending"; prepared: PreparedWithdrawal }
  /** Signed and sent, outcome unknown: only the same order may be sent again. */
  | { step: "open"; signed: Signed; prepared: PreparedWithdrawal; error: unknown }
  /** A team's order, which more members must sign. */
  | { step: "waiting"; prepared: PreparedWithdrawal; error: ApiError }
  | { step: "done"; prepared: PreparedWithdrawal; answer: WithdrawalAnswer };

export interface Withdrawal {
  state: WithdrawalState;
  prepare: (request: Parameters<typeof prepareWithdrawal>[1]) => Promise<void>;
  sign: (connection: Connection, prepared: PreparedWithdrawal) => Promise<void>;
  sendAgain: (signed: Signed) => Promise<void>;
  reset: () => void;
}

/** The server refused before it signed anything, so no money moved. */
const isRefusal = (error: unknown): boolean =>
  error instanceof ApiError &&
  error.status >= 400 &&
  error.status < 500 &&
  error.code !== "idempotency_in_progress" &&
  error.code !== "session_required";

export function useWithdrawal(agent: Agent, owner: string): Withdrawal {
  const { id: agentId, walletAddress: wallet } = agent;
  const [state, setState] = useState<WithdrawalState>({ step: "form" });
  const info = useInfo();

  const prepare = useCallback(
    async (request: Parameters<typeof prepareWithdrawal>[1]) => {
      setState({ step: "preparing" });
      try {
        const { order } = await prepareWithdrawal(agentId, request);
        // The response only provides the order; the app makes what the wallet signs.
        const network = findNetwork(info, request.network);
        if (!network) throw new Error("The network of this withdrawal is not known.");
        const wanted = { ...request, wallet, to: request.to ?? owner };
        const typedData = withdrawalToSign(order, wanted, network);
        setState({ step: "review", prepared: { order, typedData } });
      } catch (error) {
        setState({ step: "form", error });
      }
    },
    [agentId, wallet, owner, info],
  );

  const execute = useCallback(
    async (signed: Signed) => {
      const { prepared } = signed;
      setState({ step: "sending", prepared });
      try {
        const answer = await executeWithdrawal(
          agentId,
          prepared.order,
          signed.signature,
          signed.idempotencyKey,
        );
        setState({ step: "done", prepared, answer });
      } catch (error) {
        if (error instanceof ApiError && error.isWaiting) {
          setState({ step: "waiting", prepared, error });
          await invalidate.afterWaiting();
          return;
        }
        setState(
          isRefusal(error)
            ? { step: "review", prepared, error }
            : { step: "open", prepared, signed, error },
        );
      }
      await invalidate.afterPayment();
    },
    [agentId],
  );

  const sign = useCallback(
    async (connection: Connection, prepared: PreparedWithdrawal) => {
      setState({ step: "signing", prepared });
      let signature: string;
      try {
        signature = await signTypedData(connection, prepared.typedData);
      } catch (error) {
        setState(
          isRejection(error)
            ? { step: "review", prepared, declined: true }
            : { step: "review", prepared, error: walletError(error) },
        );
        return;
      }
      await execute({ prepared, signature, idempotencyKey: crypto.randomUUID() });
    },
    [execute],
  );

  const reset = useCallback(() => {
    setState({ step: "form" });
  }, []);
  return { state, prepare, sign, sendAgain: execute, reset };
}
