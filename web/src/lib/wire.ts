/** The shapes of the API as the screens use them. Money is a decimal string, time is ISO 8601. */
export type Address = `0x${string}`;

export interface Page<T> {
  items: T[];
  nextCursor: string | null;
}

export interface NetworkInfo {
  id: string;
  chainId: number;
  name: string;
  slug: string;
  testnet: boolean;
  nativeIsUsdc: boolean;
  usdc: { address: Address; name: string; version: string };
  explorerUrl: string;
  blockTimeMs: number;
  blockHeight: string | null;
  walletRpcUrl: string | null;
  demoPath: string | null;
}

export interface ServiceInfo {
  version: string;
  localWorld: boolean;
  publicUrl: string;
  facilitator: { url: string; requiresKey: boolean; addresses: Address[] };
  networks: NetworkInfo[];
  totals: {
    agents: number;
    paymentsSettled: number;
    volumeSettled: string;
    paymentsBlocked: number;
    medianSettleMs: number | null;
  };
}

export interface LocalInfo {
  demoOwnerAddress: Address;
  demoOwnerPrivateKey: Address;
  faucet: boolean;
  faucetAmount: string;
}

export interface Session {
  address: Address;
  sessionId: string;
  createdAt: string;
  expiresAt: string;
}

export interface SessionRow {
  id: string;
  createdAt: string;
  lastSeenAt: string;
  expiresAt: string;
  userAgent: string;
  ip: string;
  current: boolean;
}

export interface AllowlistEntry {
  address: Address;
  label: string;
  createdAt?: string;
}

export interface Limits {
  limit: string;
  spent: string;
  reserved: string;
  remaining: string;
  nextReleaseAt: string | null;
}

export interface Agent {
  id: string;
  name: string;
  status: "active" | "paused" | "archived";
  expired: boolean;
  network: string;
  walletAddress: Address;
  balance: string | null;
  limits: Limits;
  perPaymentLimit: string | null;
  expiresAt: string | null;
  allowlist: AllowlistEntry[];
  createdAt: string;
  updatedAt: string;
  archivedAt: string | null;
  lastActivityAt: string | null;
  blocked24h: number;
}

export interface ApiKey {
  id: string;
  label: string;
  prefix: string;
  last4: string;
  createdAt: string;
  expiresAt: string | null;
  revokedAt: string | null;
  lastUsedAt: string | null;
  rotatedToId: string | null;
}

export interface AuditEntry {
  id: string;
  actor: string;
  action: string;
  before: unknown;
  after: unknown;
  createdAt: string;
  requestId: string | null;
}

export interface Policy {
  rule: string;
  window: string | null;
  limit: string | null;
  spent: string | null;
  reserved: string | null;
  remaining: string | null;
  requested: string | null;
}

export interface TraceStep {
  rule: string;
  passed: boolean | null;
  detail: string;
}

export interface Payment {
  id: string;
  agentId: string;
  agentName: string;
  kind: "spend" | "x402" | "withdrawal";
  status: string;
  network: string;
  asset: string;
  recipient: Address | null;
  amount: string;
  memo: string | null;
  createdAt: string;
  updatedAt: string;
  settledAt: string | null;
  txHash: string | null;
  blockNumber: string | null;
  requestId: string | null;
  apiKey: { id: string; label: string; prefix: string; last4: string } | null;
  nonce: string | null;
  validBefore: string | null;
  denial: {
    code: string;
    suggestion: string;
    policy: Policy | null;
    availableAt: string | null;
    nextReleaseAt: string | null;
  } | null;
  trace: TraceStep[];
  x402: {
    url: string;
    listingId: string | null;
    requirement: unknown;
    upstreamStatus: number | null;
    delivered: boolean | null;
  } | null;
  failure: { code: string; detail: string } | null;
}

export interface SeriesPoint {
  at: string;
  spent: string;
  count: number;
  blocked: number;
}

export interface Overview {
  totals: {
    balance: string | null;
    spent24h: string;
    reserved: string;
    blocked24h: number;
    agents: number;
    activeAgents: number;
  };
  hourly: SeriesPoint[];
  daily: SeriesPoint[];
}

export interface Listing {
  id: string;
  mine: boolean;
  name: string;
  description: string;
  category: string;
  url: string;
  host: string;
  method: string;
  network: string;
  asset: string;
  price: string;
  maxPrice: string;
  payTo: Address;
  status: "active" | "paused" | "failing" | "mismatch";
  statusReason: string | null;
  sample: string | null;
  lastProbedAt: string | null;
  createdAt: string;
}

export interface FacilitatorStats {
  last24h: {
    verified: number;
    settled: number;
    failed: number;
    volume: string;
    successRate: number | null;
    medianSettleMs: number | null;
    p95SettleMs: number | null;
  };
  allTime: { settled: number; volume: string };
  batchSizes: { size: number; count: number }[];
  hourly: { at: string; settled: number; failed: number; volume: string }[];
  recent: {
    id: string;
    status: string;
    kind: string;
    network: string;
    from: Address;
    to: Address;
    amount: string;
    txHash: string | null;
    createdAt: string;
    settledAt: string | null;
  }[];
  relayers: {
    network: string;
    address: Address;
    gasBalance: string | null;
    gasSymbol: string;
    low: boolean;
  }[];
}

export interface TypedData {
  domain: Record<string, unknown>;
  types: Record<string, { name: string; type: string }[]>;
  primaryType: string;
  message: Record<string, unknown>;
}

export interface WithdrawalOrder {
  wallet: Address;
  to: Address;
  asset: Address;
  amount: string;
  nonce: string;
  deadline: string;
}

export interface CatalogueEntry {
  code: string;
  status: number;
  title: string;
  help: string;
  retryable: boolean;
}
