import { Button, Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { TxHash } from "../../components/Address.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note } from "../../components/Layout.tsx";
import { ApiError } from "../../lib/api.ts";
import { isRejection, walletError } from "../../lib/wallet/provider.ts";
import { FundingError, type FundResult, type PendingFund } from "./fund.ts";

interface FundOutcomeProps {
  result: FundResult | undefined;
  error: unknown;
  explorer: string | undefined;
  onAgain: (pending: PendingFund) => void;
}

export function FundOutcome({ result, error, explorer, onAgain }: FundOutcomeProps): ReactNode {
  if (error !== null && isRejection(error))
    return <Note>You declined in your wallet. No money moved.</Note>;
  if (error !== null) {
    const isKnown = error instanceof ApiError || error instanceof FundingError;
    return <ErrorNotice title="The transfer failed" error={isKnown ? error : walletError(error)} />;
  }
  if (!result) return null;
  if (result.kind === "pending") {
    return (
      <Note>
        <Stack gap="xs">
          <span role="status">
            The transfer was sent and is not final yet. Checking again cannot send it twice.
          </span>
          <Button
            size="xs"
            onClick={() => {
              onAgain(result);
            }}
          >
            Check again
          </Button>
        </Stack>
      </Note>
    );
  }
  return (
    <Note color="green">
      <span role="status">
        {result.kind === "done"
          ? "Settled. "
          : "Sent; the balance updates when the transfer is on chain. "}
      </span>
      <TxHash value={result.txHash} explorerUrl={explorer} />
    </Note>
  );
}
