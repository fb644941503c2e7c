/** The parts of EIP-1193 and EIP-6963 that this app uses, and their errors in plain words. */
export interface Provider {
  request(call: { method: string; params?: unknown }): Promise<unknown>;
  on?(event: string, listener: (payload: unknown) => void): void;
  removeListener?(event: string, listener: (payload: unknown) => void): void;
}

export interface Wallet {
  /** The reverse domain name of EIP-6963, or our own id for the other two kinds. */
  id: string;
  name: string;
  icon: string | undefined;
  kind: "announced" | "injected" | "demo" | "passkey";
  open: () => Promise<Provider>;
}

/** Whether it shows an order before it signs. The demo wallet and a passkey do not, so the page does. */
export const showsOrders = ({ kind }: Wallet): boolean =>
  kind === "announced" || kind === "injected";

const codeOf = (error: unknown): number | string | undefined => {
  if (typeof error !== "object" || error === null) return undefined;
  const { code, data } = error as {
    code?: number | string;
    data?: { originalError?: { code?: number } };
  };
  return data?.originalError?.code ?? code;
};

/** The user declined: not an error, so it is not shown as one. */
export const isRejection = (error: unknown): boolean => {
  const code = codeOf(error);
  return code === 4001 || code === "ACTION_REJECTED" || code === 5000;
};

export const isUnknownChain = (error: unknown): boolean => codeOf(error) === 4902;
const isRequestPending = (error: unknown): boolean => codeOf(error) === -32002;

/** Wallets throw plain objects, screens show Errors. */
export function walletError(error: unknown): Error {
  if (isRequestPending(error))
    return new Error(
      "Your wallet already has an open request. Open the wallet and confirm or decline it there.",
      {
        cause: error,
      },
    );
  const message = (error as { message?: unknown } | null)?.message;
  return new Error(
    typeof message === "string" && message !== ""
      ? `Your wallet returned an error: ${message}`
      : "Your wallet returned an unexpected result.",
    { cause: error },
  );
}
