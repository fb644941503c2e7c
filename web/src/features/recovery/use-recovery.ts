import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import type { MoveOwnerOrder, SecondWalletOrder } from "../../../../packages/rules/src/orders.ts";
import { ApiError, api } from "../../lib/api.ts";
import { isSameAddress } from "../../lib/address.ts";
import { moveToSign, secondWalletToSign } from "../../lib/orders/to-sign.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { Connection } from "../../lib/wallet/connection.ts";
import { isRejection, walletError } from "../../lib/wallet/provider.ts";
import { signTypedData } from "../../lib/wallet/typed-data.ts";
import type { Recovery } from "../../lib/wire.ts";

type TypedData = Parameters<typeof signTypedData>[1];

interface Requested<O> {
  order: O;
  chainId: number;
}

/** The order in the server's response, and its chain; any other failure is thrown. */
async function orderFor<O>(send: () => Promise<unknown>): Promise<Requested<O>> {
  try {
    await send();
  } catch (error) {
    if (!(error instanceof ApiError) || error.problem.typedData === undefined) throw error;
    const { order, typedData } = error.problem as unknown as { order: O; typedData: TypedData };
    return { order, chainId: Number(typedData.domain.chainId) };
  }
  throw new Error("The service did not request a signature.");
}

/** Signs with the connected wallet, if it is the required one. */
async function signAs(
  connection: Connection,
  address: string,
  typedData: TypedData,
): Promise<string> {
  if (!isSameAddress(connection.address, address))
    throw new Error(`Choose the account ${address} in your wallet, then press again.`);
  try {
    return await signTypedData(connection, typedData);
  } catch (error) {
    throw isRejection(error)
      ? new Error("You declined in your wallet. Nothing was changed.")
      : walletError(error);
  }
}

/** Sets or removes the recovery wallet: one press, one wallet window. */
export const useNameSecond = (owner: string) =>
  useMutation({
    mutationFn: async (request: { connection: Connection; address: string | null }) => {
      const { connection, address } = request;
      const path = "/api/recovery/second";
      const { order, chainId } = await orderFor<SecondWalletOrder>(() =>
        api.put(path, { address }),
      );
      const typedData = secondWalletToSign(order, { owner, second: address }, chainId);
      const signature = await signAs(connection, owner, typedData);
      return api.put<Recovery>(path, { address, authorization: { order, signature } });
    },
    onSuccess: () => invalidate.afterRecovery(),
  });

interface HalfSigned {
  order: MoveOwnerOrder;
  typedData: TypedData;
  signature: string;
}

/** The first of the two signatures that make the recovery wallet the owner. */
export const useSignMove = (owner: string, second: string) =>
  useMutation({
    mutationFn: async (connection: Connection): Promise<HalfSigned> => {
      const { order, chainId } = await orderFor<MoveOwnerOrder>(() =>
        api.post("/api/recovery/move"),
      );
      const typedData = moveToSign(order, { from: owner, to: second }, chainId);
      return { order, typedData, signature: await signAs(connection, owner, typedData) };
    },
  });

/** The second signature, and the request with both. */
export const useMove = (second: string) =>
  useMutation({
    mutationFn: async (given: { connection: Connection; half: HalfSigned }) => {
      const { order, signature, typedData } = given.half;
      const secondSignature = await signAs(given.connection, second, typedData);
      return api.post<{ agents: number; note: string }>("/api/recovery/move", {
        authorization: { order, signature, secondSignature },
      });
    },
    onSuccess: ({ note }) => {
      // A toast, because it outlives this screen, which no longer belongs to the first wallet.
      const title = "The recovery wallet is now the owner";
      notifications.show({ title, message: note, autoClose: false });
      return invalidate.afterMove();
    },
  });
