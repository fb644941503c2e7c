import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Muted, Row, Stack } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { Segmented } from "../../components/Segmented.tsx";
import { Loading, Skeleton } from "../../components/Skeleton.tsx";
import { PointYourApi } from "../../features/facilitator/PointYourApi.tsx";
import { merchantQuery } from "../../features/merchant/api.ts";
import { MerchantKeys } from "../../features/merchant/MerchantKeys.tsx";
import {
  MerchantNumbers,
  VolumePerDay,
  WhyFailed,
} from "../../features/merchant/MerchantNumbers.tsx";
import { Settlements } from "../../features/merchant/Settlements.tsx";
import { useParameter } from "../../lib/use-parameter.ts";
import { useInfo } from "../../shared/info.ts";
import { useOwner } from "../../shared/session/session-context.ts";

const SPANS = ["7", "30", "90"] as const;

export default function MerchantScreen(): ReactNode {
  const { address } = useOwner();
  const info = useInfo();
  const network = info?.networks[0];
  const [chosen, setDays] = useParameter("days");
  const days = SPANS.find((span) => span === chosen) ?? "30";
  const { data: merchant, error, refetch } = useQuery(merchantQuery(days));
  return (
    <>
      <PageHeader title="Merchant" lead="Payments to your wallet that this facilitator settled." />
      <Stack gap={5}>
        <Row>
          <Segmented
            label="Days"
            value={days}
            onChange={setDays}
            options={SPANS.map((value) => ({ value, label: `${value} days` }))}
          />
          <Muted>
            payTo <Address value={address} />
          </Muted>
        </Row>
        {error && (
          <ErrorNotice
            title={
              merchant ? "These numbers may be out of date" : "The numbers could not be loaded"
            }
            error={error}
            onRetry={() => void refetch()}
          />
        )}
        {(merchant || !error) && <MerchantNumbers merchant={merchant} days={days} />}
        {merchant && <VolumePerDay merchant={merchant} />}
        {!merchant && !error && (
          <Loading label="charts">
            <Skeleton shape="chart" />
          </Loading>
        )}
        <Settlements />
        {merchant && <WhyFailed merchant={merchant} />}
        <MerchantKeys merchant={merchant} />
        {info && network && <PointYourApi info={info} network={network} />}
      </Stack>
    </>
  );
}
