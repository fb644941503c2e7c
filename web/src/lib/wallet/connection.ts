/** The wallet that this tab is connected to. In memory only: a page load starts without a connection. */
import { checkAddress, isSameAddress, shortAddress } from "../address.ts";
import { createStore } from "../store.ts";
import type { Address } from "../wire.ts";
import { type Provider, type Wallet, walletError } from "./provider.ts";

export interface Connection {
  wallet: Wallet;
  provider: Provider;
  address: Address;
  chainId: number;
}

/** A passkey signs for every chain. */
export const isOnChain = ({ wallet, chainId }: Connection, wanted: number): boolean =>
  wallet.kind === "passkey" || chainId === wanted;

const connection = createStore<Connection | null>(null);
let detach: (() => void) | undefined;

const firstAccount = async (accounts: unknown): Promise<Address | undefined> => {
  const candidate: unknown = Array.isArray(accounts) ? accounts[0] : undefined;
  if (typeof candidate !== "string") return undefined;
  const check = await checkAddress(candidate.toLowerCase());
  return check.ok ? check.address : undefined;
};

const toChainId = (value: unknown): number =>
  typeof value === "number" ? value : Number.parseInt(String(value), 16);

function attach(provider: Provider): () => void {
  const follow = async (accounts: unknown): Promise<void> => {
    const address = await firstAccount(accounts);
    const current = connection.get();
    if (current?.provider !== provider) return;
    if (address === undefined) disconnect();
    else connection.set({ ...current, address });
  };
  const onAccounts = (accounts: unknown): void => void follow(accounts);
  const onChain = (chain: unknown): void => {
    const current = connection.get();
    if (current?.provider === provider) connection.set({ ...current, chainId: toChainId(chain) });
  };
  provider.on?.("accountsChanged", onAccounts);
  provider.on?.("chainChanged", onChain);
  return () => {
    provider.removeListener?.("accountsChanged", onAccounts);
    provider.removeListener?.("chainChanged", onChain);
  };
}

/** With `expected`, any other account is refused, because the screen shows that account's data. */
export async function connect(wallet: Wallet, expected?: string): Promise<Connection> {
  const provider = await wallet.open();
  const address = await firstAccount(await provider.request({ method: "eth_requestAccounts" }));
  if (address === undefined)
    throw walletError({ message: "the wallet shares no account with this site" });
  if (expected !== undefined && !isSameAddress(address, expected))
    throw new OtherAccountError(address, expected);
  return adopt(wallet, provider, address);
}

async function adopt(wallet: Wallet, provider: Provider, address: Address): Promise<Connection> {
  const chainId = toChainId(await provider.request({ method: "eth_chainId" }));
  detach?.();
  detach = attach(provider);
  const next = { wallet, provider, address, chainId };
  connection.set(next);
  return next;
}

export class OtherAccountError extends Error {
  override readonly name = "OtherAccountError";
  constructor(shown: string, expected: string) {
    super(
      `Your wallet uses the account ${shortAddress(shown)} instead of ${shortAddress(expected)}. Choose that account in your wallet, then try again.`,
    );
  }
}

const SILENCE_MS = 1_500;
let known: readonly Wallet[] = [];

/** The wallets that `reconnect` tries. */
export const setKnownWallets = (wallets: readonly Wallet[]): void => {
  known = wallets;
};

/** Finds the wallet that already shares this account with the site, which opens no window. */
export async function reconnect(address: string): Promise<void> {
  const find = async (): Promise<void> => {
    for (const wallet of known) {
      if (connection.get()) return;
      try {
        const provider = await wallet.open();
        const shared = await firstAccount(await provider.request({ method: "eth_accounts" }));
        if (shared !== undefined && isSameAddress(shared, address) && !connection.get())
          await adopt(wallet, provider, shared);
      } catch {
        // The user selects a wallet that does not answer.
      }
    }
  };
  const silence = new Promise<void>((resolve) => {
    setTimeout(resolve, SILENCE_MS);
  });
  if (!connection.get()) await Promise.race([find(), silence]);
}

export function disconnect(): void {
  detach?.();
  detach = undefined;
  connection.set(null);
}

export const currentConnection = connection.get;
export const useConnection = connection.use;
