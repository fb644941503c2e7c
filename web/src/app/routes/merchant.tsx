import { Group, SegmentedControl, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { Note } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Loading, Skeleton } from "../../components/Skeleton.tsx";
import { PointYourApi } from "../../features/facilitator/PointYourApi.tsx";
import { merchantQuery } from "../../features/merchant/api.ts";
import { Fees } from "../../features/merchant/Fees.tsx";
import { MerchantKeys } from "../../features/merchant/MerchantKeys.tsx";
import {
  MerchantNumbers,
  MissingCells,
  VolumePerDay,
  WhyFailed,
} from "../../features/merchant/MerchantNumbers.tsx";
import { Products } from "../../features/merchant/Products.tsx";
import { Settlements } from "../../features/merchant/Settlements.tsx";
import { useParameter } from "../../lib/use-parameter.ts";
import { useInfo } from "../../shared/info.ts";
import { hasWallet, useOwner } from "../../shared/session/session-context.ts";

const SPANS = ["7", "30", "90"] as const;

export default function MerchantScreen(): ReactNode {
  const session = useOwner();
  const info = useInfo();
  const network = info?.networks[0];
  const [chosen, setDays] = useParameter("days");
  const days = SPANS.find((span) => span === chosen) ?? "30";
  const query = useQuery({ ...merchantQuery(days), enabled: hasWallet(session) });
  const { data: merchant, error } = query;
  if (!hasWallet(session))
    return (
      <>
        <PageHeader
          title="Merchant"
          lead="Payments to your wallet that this facilitator settled."
        />
        <Stack gap="lg">
          <Note>
            Payments arrive in a wallet, and {session.member ? "a team" : "your account"} has none.
            Sign in with the wallet that your API names as payTo to see them here.
          </Note>
          {info && network && <PointYourApi info={info} network={network} />}
        </Stack>
      </>
    );
  return (
    <>
      <PageHeader title="Merchant" lead="Payments to your wallet that this facilitator settled." />
      <Stack gap="lg">
        <Group>
          <SegmentedControl
            aria-label="Days"
            value={days}
            onChange={setDays}
            data={SPANS.map((value) => ({ value, label: `${value} days` }))}
          />
          <Text span c="dimmed" size="sm">
            payTo <Address value={session.address} />
          </Text>
        </Group>
        <QueryStatus
          query={query}
          what="numbers"
          failed={merchant ? "These numbers may be out of date" : "The numbers could not be loaded"}
        />
        <MissingCells cells={merchant?.missingCells ?? []} />
        {(merchant || !error) && <MerchantNumbers merchant={merchant} days={days} />}
        {merchant && <VolumePerDay merchant={merchant} />}
        {!merchant && !error && (
          <Loading label="charts">
            <Skeleton shape="chart" />
          </Loading>
        )}
        <Settlements />
        <Fees />
        <Products days={days} />
        {merchant && <WhyFailed merchant={merchant} />}
        <MerchantKeys merchant={merchant} />
        {info && network && <PointYourApi info={info} network={network} />}
      </Stack>
    </>
  );
}
