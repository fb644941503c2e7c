import type { ReactNode } from "react";
import { Link } from "react-router";
import { Muted } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { Catalogue } from "../../features/developers/Catalogue.tsx";

export default function ErrorsScreen(): ReactNode {
  return (
    <>
      <PageHeader
        above={
          <Muted>
            <Link to="/developers">Developers</Link>
          </Muted>
        }
        title="Error catalogue"
        lead="Every error has one of these codes, a one-sentence explanation and the request id."
      />
      <Catalogue />
    </>
  );
}
